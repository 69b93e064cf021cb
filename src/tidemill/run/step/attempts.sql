-- name: take_late
-- gives: run_id
-- locks: run
-- wakes: progress
-- Those past their deadline go first, whatever their priority.
WITH picked AS MATERIALIZED (
    SELECT run_id FROM run {indexed_by:run_deadline}
     WHERE state = 'PENDING' AND deadline IS NOT NULL AND deadline <= tidemill_now() AND not_before <= tidemill_now()
       AND (:with_spark = 1 OR spark = 0)
       AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
       AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
             AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
                  OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
     ORDER BY deadline, run_id
     LIMIT :most {skip_locked}
)
UPDATE run
   SET state = 'STARTING', epoch = epoch + 1, owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = coalesce(run.code, (SELECT program.bundle FROM program WHERE program.program_id = run.program_id)),
       app_version = (SELECT program.app_version FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: take_runs
-- gives: run_id
-- locks: run
-- wakes: progress
-- By when their work came, not by when they may be tried again: a run that waited for its next attempt keeps its turn.
-- Not what this node could not load a moment ago, and not the Spark profiles that this node leaves alone. The attempt has the code that its program has now.
-- Materialized: PostgreSQL may run a sub-select with a limit more than once, and lock more than it takes.
WITH picked AS MATERIALIZED (
    SELECT run_id FROM run {indexed_by:run_pending}
     WHERE state = 'PENDING' AND not_before <= tidemill_now()
       AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
       AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
             AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
                  OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
     ORDER BY priority DESC, came_at, created_at, run_id
     LIMIT :most {skip_locked}
)
UPDATE run
   SET state = 'STARTING', epoch = epoch + 1, owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = coalesce(run.code, (SELECT program.bundle FROM program WHERE program.program_id = run.program_id)),
       app_version = (SELECT program.app_version FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: take_plain_runs
-- gives: run_id
-- locks: run
-- wakes: progress
-- The same without those that need Spark, by an index of its own: a runner in which some of them wait takes no more.
WITH picked AS MATERIALIZED (
    SELECT run_id FROM run {indexed_by:run_pending_plain}
     WHERE state = 'PENDING' AND spark = 0 AND not_before <= tidemill_now()
       AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
       AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
             AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
                  OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
     ORDER BY priority DESC, came_at, created_at, run_id
     LIMIT :most {skip_locked}
)
UPDATE run
   SET state = 'STARTING', epoch = epoch + 1, owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = coalesce(run.code, (SELECT program.bundle FROM program WHERE program.program_id = run.program_id)),
       app_version = (SELECT program.app_version FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: read_taken
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time,
--   namespace, app, name, program_kind, spec, program_bundle, retired, spark_profile
-- In the order of their turns.
SELECT r.run_id, r.kind, r.program_id, r.schedule_id, r.job_id, r.state, r.epoch, r.failures, r.losses, r.priority,
       r.arguments, r.triggered_by, r.write_pointer, r.owner, r.host, r.pid, r.lease_until, r.kill_asked,
       nullif(r.not_before, 0) AS not_before, r.created_at, r.started_at, r.ended_at, r.exit_reason, r.log_location,
       r.facts, r.bundle, r.app_version, r.owner_process, r.exit_cause, r.first_write_pointer, r.core_time,
       p.namespace, p.app, p.name, p.kind AS program_kind, p.spec, p.bundle AS program_bundle, p.retired, p.spark_profile
  FROM run AS r JOIN program AS p ON p.program_id = r.program_id
 WHERE r.run_id IN ({texts:runs})
 ORDER BY CASE WHEN r.deadline <= tidemill_now() THEN r.deadline ELSE 9223372036854775807 END, r.priority DESC,
          r.came_at, r.created_at, r.run_id

-- name: take_workers
-- gives: run_id
-- locks: run
-- wakes: progress
-- By their slots, which are few: among all that waits they would be looked for. (PostgreSQL has no statistics of a
-- table that was never filled, and guesses a thousand workers. Then it goes through all runs that wait.)
WITH picked AS MATERIALIZED (
    SELECT run_id FROM run
     WHERE EXISTS (SELECT 1 FROM worker) AND state = 'PENDING' AND not_before <= tidemill_now()
       AND run_id IN (SELECT slot.run_id FROM worker CROSS JOIN slot
                       WHERE slot.limit_key = 'program:' || worker.program_id)
       AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
             AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
                  OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
     {skip_locked}
)
UPDATE run
   SET state = 'STARTING', epoch = epoch + 1, owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = coalesce(run.code, (SELECT program.bundle FROM program WHERE program.program_id = run.program_id)),
       app_version = (SELECT program.app_version FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: find_due_workers
-- gives: found
SELECT 1 AS found FROM worker CROSS JOIN slot CROSS JOIN run
 WHERE EXISTS (SELECT 1 FROM worker) AND slot.limit_key = 'program:' || worker.program_id AND run.run_id = slot.run_id
   AND run.state = 'PENDING' AND run.not_before <= tidemill_now()
   AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
         AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
              OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
 LIMIT 1

-- name: find_late
-- gives: found
SELECT 1 AS found FROM run {indexed_by:run_deadline}
 WHERE state = 'PENDING' AND deadline IS NOT NULL AND deadline <= tidemill_now() AND not_before <= tidemill_now()
   AND (:with_spark = 1 OR spark = 0)
   AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
   AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
         AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
              OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
 LIMIT 1

-- name: find_due
-- gives: found
SELECT 1 AS found FROM run WHERE state = 'PENDING' AND not_before <= tidemill_now()
   AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
   AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
         AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
              OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
 LIMIT 1

-- name: find_plain_due
-- gives: found
SELECT 1 AS found FROM run WHERE state = 'PENDING' AND spark = 0 AND not_before <= tidemill_now()
   AND (SELECT 1 FROM worker WHERE worker.program_id = run.program_id) IS NULL
   AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
         AND (coalesce(run.code, program.bundle) IN ({texts:avoided})
              OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL
 LIMIT 1

-- name: find_next_due
-- gives: not_before
SELECT min(not_before) AS not_before FROM run WHERE state = 'PENDING' AND not_before > 0 AND not_before > :since

-- name: register
-- locks: run
-- wakes: progress
-- Compare and set: the process of an attempt that was given up meanwhile finds nothing to register for. A process that
-- does not know whether it has registered does so again, and is known by its token.
UPDATE run
   SET state = 'RUNNING', pid = :pid, facts = :facts, log_location = :log_location,
       token_digest = :token_digest, started_at = coalesce(started_at, tidemill_now())
 WHERE run_id = :run_id AND epoch = :epoch
   AND (state = 'STARTING' OR (state = 'RUNNING' AND token_digest = :token_digest))

-- name: note_stages
-- only: sqlite
-- locks: run
-- wakes: progress
-- The other facts stay: a worker notes some with each commit, beside the thread that notes this one.
UPDATE run SET facts = json_set(facts, '$.stages', json(:stages))
 WHERE run_id = :run_id AND epoch = :epoch AND state = 'RUNNING'

-- name: note_stages
-- only: postgres
-- locks: run
-- wakes: progress
UPDATE run SET facts = CAST(jsonb_set(CAST(facts AS jsonb), ARRAY['stages'], CAST(:stages AS jsonb)) AS text)
 WHERE run_id = :run_id AND epoch = :epoch AND state = 'RUNNING'

-- name: renew_leases
-- gives: run_id
-- locks: run
-- quiet
-- An expired lease may still be renewed until a reaper has fenced the attempt. The state is no plain column here: by
-- some statistics PostgreSQL would else read all live runs by a partial index instead of looking up the held ones.
UPDATE run SET lease_until = tidemill_now() + :lease
 WHERE run_id IN (SELECT h.run_id FROM {rows:held(run_id text, epoch bigint)} AS h
                   JOIN run AS r ON r.run_id = h.run_id AND r.epoch = h.epoch)
   AND state || '' IN ('STARTING', 'RUNNING', 'STOPPING')
RETURNING run_id

-- name: refuse_unless_running
-- locks: run
SELECT tidemill_refuse('run_taken', CAST(:run_id AS TEXT), CAST(CAST(:epoch AS BIGINT) AS TEXT),
                       (SELECT state FROM run WHERE run_id = :run_id))
 WHERE NOT EXISTS (SELECT 1 FROM run
                    WHERE run_id = :run_id AND epoch = :epoch AND state IN ('RUNNING', 'STOPPING') {for_update})

-- name: refuse_unless_starting
-- locks: run
SELECT tidemill_refuse('run_taken', CAST(:run_id AS TEXT), CAST(CAST(:epoch AS BIGINT) AS TEXT),
                       (SELECT state FROM run WHERE run_id = :run_id))
 WHERE NOT EXISTS (SELECT 1 FROM run WHERE run_id = :run_id AND epoch = :epoch AND state = 'STARTING' {for_update})

-- name: register_and_attach
-- locks: run
-- wakes: progress
UPDATE run
   SET state = 'RUNNING', pid = :pid, facts = :facts, log_location = :log_location,
       token_digest = :token_digest, started_at = coalesce(started_at, tidemill_now()),
       write_pointer = {commit_seq}, first_write_pointer = coalesce(first_write_pointer, {commit_seq})
 WHERE run_id = :run_id AND epoch = :epoch

-- name: attach_transaction
-- locks: run
-- quiet
UPDATE run SET write_pointer = {commit_seq}, first_write_pointer = coalesce(first_write_pointer, {commit_seq})
 WHERE run_id = :run_id AND epoch = :epoch

-- name: refuse_if_moved
-- locks: run
-- The facts by which the attempt's end was decided must still hold. The lease counts only if the caller fences because
-- of it. Locked: a runner that takes the run, or a kill, takes no clock, and would come between this look and the
-- write.
SELECT tidemill_refuse('attempt_moved', CAST(:run_id AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM run
                    WHERE run_id = :run_id AND epoch = :epoch AND state = :state AND kill_asked = :kill_asked
                      AND coalesce(write_pointer, -1) = :write_pointer
                      AND (CAST(:lease_until AS BIGINT) IS NULL OR lease_until = :lease_until) {for_update})

-- name: complete_run
-- gives: wakes
-- locks: run
-- wakes: completed, freed, job
-- What a completed run leaves for a later time wakes the keeper by itself. A scheduler is woken if a timer, a queue of
-- boundaries, or a backfill has waited for the end of this run: each had the scheduler of each node look.
-- An attempt that does not know its core time adds nothing.
-- The driver knows how long its transaction had been open when it began to commit. So no clock of two machines differs.
UPDATE run
   SET state = 'COMPLETED', ended_at = tidemill_now(), lease_until = NULL, losses = 0, exit_cause = NULL,
       exit_reason = :reason, facts = :facts,
       commit_began_at = (SELECT tx.began_at FROM tx WHERE tx.write_pointer = run.write_pointer)
                         + CAST(:open_for AS BIGINT),
       core_time = coalesce(core_time + coalesce(CAST(:core_time AS BIGINT), 0), CAST(:core_time AS BIGINT))
 WHERE run_id = :run_id AND epoch = :epoch
RETURNING CASE WHEN EXISTS (SELECT 1 FROM timer AS t WHERE t.schedule_id = run.schedule_id AND t.behind = run.job_id)
                 OR EXISTS (SELECT 1 FROM boundary AS b WHERE b.schedule_id = run.schedule_id AND b.behind = run.job_id)
                 OR EXISTS (SELECT 1 FROM backfill_item AS i WHERE i.run_id = run.run_id AND i.state = 'RUNNING')
               THEN 'completed, freed, job' ELSE 'completed, freed' END AS wakes

-- name: repeat_run
-- locks: run
-- wakes: run, time
UPDATE run
   SET state = 'PENDING', not_before = tidemill_now() + :delay, failures = :failures, losses = :losses,
       exit_cause = :cause, exit_reason = :reason, owner = NULL, owner_process = NULL, host = NULL, pid = NULL, lease_until = NULL, write_pointer = NULL,
       core_time = coalesce(core_time + coalesce(CAST(:core_time AS BIGINT), 0), CAST(:core_time AS BIGINT))
 WHERE run_id = :run_id AND epoch = :epoch

-- name: end_run
-- locks: run
-- wakes: run, job, time
UPDATE run
   SET state = :state, ended_at = tidemill_now(), failures = :failures, losses = :losses, exit_cause = :cause,
       exit_reason = :reason, lease_until = NULL,
       core_time = coalesce(core_time + coalesce(CAST(:core_time AS BIGINT), 0), CAST(:core_time AS BIGINT))
 WHERE run_id = :run_id AND epoch = :epoch
