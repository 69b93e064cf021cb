-- name: put_node
-- quiet
-- A node whose row was deleted as that of a dead node, or whose catalog was restored, has a row again. A request to
-- drain stays, whether only the row or only the node knows of it.
INSERT INTO node (node_id, host, process, roles, slots, started_at, seen_at, drains)
VALUES (:node_id, :host, :process, :roles, :slots, tidemill_now(), tidemill_now(), :drains)
    ON CONFLICT (node_id) DO UPDATE SET seen_at = excluded.seen_at, drains = node.drains | excluded.drains

-- name: find_node
-- gives: node_id, host, process, roles, slots, started_at, seen_at, drains
SELECT node_id, host, process, roles, slots, started_at, seen_at, drains FROM node WHERE node_id = :node_id

-- name: list_nodes
-- gives: node_id, host, process, roles, slots, started_at, seen_at, drains
-- In the order of their starts, which that of ids is about.
SELECT node_id, host, process, roles, slots, started_at, seen_at, drains
  FROM node WHERE node_id > :after ORDER BY node_id LIMIT :limit

-- name: drain_node
UPDATE node SET drains = 1 WHERE node_id = :node_id AND drains = 0

-- name: delete_node
-- quiet
DELETE FROM node WHERE node_id = :node_id

-- name: find_old_node
-- gives: node_id
SELECT node_id FROM node WHERE seen_at < tidemill_now() - :keep ORDER BY seen_at LIMIT 1

-- name: delete_old_nodes
-- quiet
DELETE FROM node WHERE seen_at < tidemill_now() - :keep

-- name: count_taken_slots
-- gives: runs
-- Workers and workflows take no slot. Cost: the runs with an attempt under way.
SELECT count(*) AS runs
  FROM run {indexed_by:run_live}
 WHERE state IN ('STARTING', 'RUNNING', 'STOPPING')
   AND (SELECT kind FROM program WHERE program.program_id = run.program_id)
       NOT IN ('worker', 'spark_worker', 'workflow')
