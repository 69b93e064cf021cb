-- name: insert_workflows
INSERT INTO workflow_run (run_id, spec)
SELECT r.run_id, r.spec FROM {rows:workflows(run_id text, spec text)} AS r

-- name: insert_nodes
INSERT INTO workflow_node (workflow_id, node, run_id)
SELECT r.workflow_id, r.node, r.run_id FROM {rows:nodes(workflow_id text, node text, run_id text)} AS r

-- name: find_workflow
-- gives: run_id, spec, revision, holding, holds_until, resumed_by, faults
SELECT run_id, spec, revision, holding, holds_until, resumed_by, faults FROM workflow_run WHERE run_id = :run_id

-- name: list_nodes
-- gives: node, run_id, outcome, reason, result
SELECT node, run_id, outcome, reason, result FROM workflow_node WHERE workflow_id = :run_id ORDER BY run_id

-- name: list_under_way
-- gives: run_id
SELECT run_id FROM workflow_node WHERE workflow_id = :run_id AND outcome IS NULL ORDER BY run_id

-- name: lock_run
-- gives: run_id
-- locks: run
-- Before a look at the row of a workflow: of two that change it at once the second waits. A statement of its own, since
-- PostgreSQL would compare with what was there before the wait. A take and a kill hold no clock, and come between else.
SELECT run_id FROM run WHERE run_id = :run_id {for_update}

-- name: refuse_if_workflow_moved
-- After lock_run: what was decided about a workflow must still hold.
SELECT tidemill_refuse('workflow_moved', CAST(:run_id AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM run WHERE run_id = :run_id AND state = :state)
    OR NOT EXISTS (SELECT 1 FROM workflow_run WHERE run_id = :run_id AND revision = :revision)

-- name: move_workflow
-- wakes: time
UPDATE workflow_run
   SET revision = revision + 1, holding = :holding, faults = :faults,
       holds_until = tidemill_now() + CAST(:hold_for AS BIGINT)
 WHERE run_id = :run_id

-- name: end_node
UPDATE workflow_node SET outcome = :outcome, reason = :reason, result = :result
 WHERE workflow_id = :run_id AND node = :node

-- name: end_workflow
-- locks: run
-- wakes: run, job, time
UPDATE run
   SET state = :state, ended_at = tidemill_now(), exit_cause = :cause, exit_reason = :reason, facts = :facts
 WHERE run_id = :run_id

-- name: find_holding
-- gives: holding
SELECT holding FROM workflow_run WHERE run_id = :run_id

-- name: hold_claims
-- What another node has decided meanwhile is decided again.
UPDATE workflow_run SET holding = 'held', revision = revision + 1 WHERE run_id = :run_id AND holding = 'nothing'

-- name: find_next_end_of_hold
-- gives: holds_until
SELECT min(holds_until) AS holds_until FROM workflow_run WHERE holds_until IS NOT NULL

-- name: list_ended_holds
-- gives: run_id
SELECT run_id FROM workflow_run WHERE holds_until IS NOT NULL AND holds_until <= tidemill_now() ORDER BY run_id

-- name: end_hold
UPDATE workflow_run SET holding = 'returned', holds_until = NULL, revision = revision + 1 WHERE run_id = :run_id

-- name: note_resumed
UPDATE workflow_run SET resumed_by = :resumed_by, holding = 'resumed', holds_until = NULL, revision = revision + 1
 WHERE run_id = :run_id

-- name: inherit_workflow
-- The graph and the claims of the failed run.
INSERT INTO workflow_run (run_id, spec, holding)
SELECT CAST(:run_id AS TEXT), spec, holding FROM workflow_run WHERE run_id = :origin

-- name: inherit_nodes
INSERT INTO workflow_node (workflow_id, node, run_id, outcome, reason, result)
SELECT CAST(:run_id AS TEXT), node, run_id, outcome, reason, result FROM workflow_node
 WHERE workflow_id = :origin AND outcome IN ('COMPLETED', 'NO_INPUT')
