-- name: put_worker
-- wakes: run
INSERT INTO worker (program_id, instances) VALUES (:program_id, :instances)
    ON CONFLICT (program_id) DO UPDATE SET instances = excluded.instances, failures = 0, not_before = 0

-- name: retire_others
-- wakes: run
-- Workers of an app that it does not declare any more.
UPDATE worker SET instances = 0
 WHERE instances > 0 AND program_id IN (SELECT program_id FROM program WHERE namespace = :namespace AND app = :app)
   AND program_id NOT IN (SELECT value FROM ({texts:program_ids}) AS kept)

-- name: find_unbalanced
-- gives: program_id
-- A run has its slot from its launch to its end state.
SELECT worker.program_id FROM worker
 WHERE (worker.not_before <= tidemill_now()
        AND worker.instances > (SELECT count(*) FROM slot WHERE limit_key = 'program:' || worker.program_id))
    OR worker.instances < (SELECT count(*) FROM slot WHERE limit_key = 'program:' || worker.program_id)

-- name: find_next_start
-- gives: not_before
SELECT min(worker.not_before) AS not_before FROM worker
 WHERE worker.not_before > :since
   AND worker.instances > (SELECT count(*) FROM slot WHERE limit_key = 'program:' || worker.program_id)

-- name: lock_worker
-- gives: instances
-- locks: nothing, at slot_limit
-- Under its row all runners count, one after the other.
SELECT instances FROM worker WHERE program_id = :program_id AND not_before <= tidemill_now() {for_update}

-- name: list_runs
-- gives: run_id
-- A statement of its own after the lock: it sees what those before us under the lock have committed. Newest first.
SELECT slot.run_id FROM slot WHERE slot.limit_key = 'program:' || :program_id ORDER BY slot.taken_at DESC, slot.run_id DESC

-- name: note_commit
-- locks: run
-- quiet
-- A worker that commits makes progress, so its failures no longer count.
UPDATE run SET failures = 0, losses = 0, facts = :facts WHERE run_id = :run_id AND epoch = :epoch

-- name: forgive
-- locks: nothing, at slot_limit
UPDATE worker SET failures = 0 WHERE program_id = :program_id AND failures > 0

-- name: postpone_starts
-- locks: nothing, at slot_limit
-- wakes: run
-- The wait doubles with each failure in a row, up to an hour.
UPDATE worker
   SET failures = failures + :failed,
       not_before = tidemill_now()
                    + CASE WHEN failures > 20 THEN 3600000
                           WHEN :backoff * (CAST(1 AS BIGINT) << CAST(failures AS INTEGER)) > 3600000 THEN 3600000
                           ELSE :backoff * (CAST(1 AS BIGINT) << CAST(failures AS INTEGER)) END
 WHERE program_id = :program_id
