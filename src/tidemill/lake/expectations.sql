-- name: list_declared
-- gives: dataset_id, declared
SELECT e.dataset_id, e.declared
  FROM expectation AS e JOIN dataset AS d ON d.dataset_id = e.dataset_id
 WHERE d.namespace = :namespace AND d.app = :app

-- name: put_expectation
-- locks: expectation
INSERT INTO expectation (dataset_id, declared, since_at, next_check_at)
VALUES (:dataset_id, :declared, tidemill_now(), :next_check_at)
    ON CONFLICT (dataset_id) DO UPDATE
   SET declared = excluded.declared, since_at = excluded.since_at, next_check_at = excluded.next_check_at,
       broken_since = NULL

-- name: delete_expectation
-- locks: expectation
DELETE FROM expectation WHERE dataset_id = :dataset_id

-- name: note_arrival
-- locks: expectation
-- quiet
-- The check that is due next finds the arrival: no process has to look earlier.
UPDATE expectation SET arrived_at = tidemill_now() WHERE dataset_id = :dataset_id

-- name: find_some
-- gives: dataset_id, namespace, name, declared, since_at, arrived_at, next_check_at, broken_since
-- One look at the end of an index for each data set. Drops are no arrivals.
SELECT e.dataset_id, d.namespace, d.name, e.declared, e.since_at,
       coalesce(e.arrived_at, (SELECT c.at FROM partition_change AS c
                                WHERE c.dataset_id = e.dataset_id AND c.op <> 'drop'
                                ORDER BY c.commit_seq DESC LIMIT 1)) AS arrived_at,
       e.next_check_at, e.broken_since
  FROM expectation AS e JOIN dataset AS d ON d.dataset_id = e.dataset_id
 WHERE e.dataset_id IN ({texts:dataset_ids})

-- name: find_next_check
-- gives: next_check_at
SELECT min(next_check_at) AS next_check_at FROM expectation

-- name: find_due
-- gives: dataset_id, namespace, name, declared, since_at, arrived_at, next_check_at, broken_since
SELECT e.dataset_id, d.namespace, d.name, e.declared, e.since_at,
       coalesce(e.arrived_at, (SELECT c.at FROM partition_change AS c
                                WHERE c.dataset_id = e.dataset_id AND c.op <> 'drop'
                                ORDER BY c.commit_seq DESC LIMIT 1)) AS arrived_at,
       e.next_check_at, e.broken_since
  FROM expectation AS e JOIN dataset AS d ON d.dataset_id = e.dataset_id
 WHERE e.next_check_at <= tidemill_now()
 ORDER BY e.next_check_at LIMIT :limit

-- name: note_checks
-- locks: expectation
-- quiet
UPDATE expectation SET next_check_at = c.next_check_at, broken_since = c.broken_since
  FROM {rows:checks(dataset_id text, next_check_at bigint, broken_since bigint)} AS c
 WHERE expectation.dataset_id = c.dataset_id
