-- name: insert_runs
-- gives: run_id, kind
-- The run of a workflow has no process: it is under way at once. The run of a node has the turn of its workflow.
INSERT INTO run (run_id, kind, program_id, namespace, schedule_id, job_id, state, epoch, priority, deadline, arguments,
                 triggered_by, spark, created_at, started_at, came_at, backfill_id, code, replay_of)
SELECT r.run_id, CASE p.kind WHEN 'workflow' THEN 'workflow' ELSE 'program' END, r.program_id, p.namespace, r.schedule_id, r.job_id,
       CASE p.kind WHEN 'workflow' THEN 'RUNNING' ELSE 'PENDING' END, CASE p.kind WHEN 'workflow' THEN 1 ELSE 0 END,
       r.priority, coalesce(r.deadline, whole.deadline), r.arguments, r.triggered_by, CASE p.kind WHEN 'spark' THEN 1 ELSE 0 END,
       tidemill_now(), CASE p.kind WHEN 'workflow' THEN tidemill_now() END, coalesce(r.came_at, whole.came_at, tidemill_now()),
       r.backfill_id, r.code, r.replay_of
  FROM {rows:runs(run_id text, program_id text, schedule_id text, job_id text, priority bigint, deadline bigint,
                  arguments text, triggered_by text, came_at bigint, backfill_id text, code text,
                  replay_of text, workflow text)} AS r
  LEFT JOIN program AS p ON p.program_id = r.program_id
  LEFT JOIN run AS whole ON whole.run_id = r.workflow
 WHERE TRUE
RETURNING run_id, kind

-- name: insert_slots
INSERT INTO slot (limit_key, run_id, taken_at)
SELECT r.limit_key, r.run_id, tidemill_now() FROM {rows:slots(limit_key text, run_id text)} AS r

-- name: insert_external
-- wakes: progress
INSERT INTO run (run_id, kind, state, epoch, arguments, triggered_by, owner, host, pid, lease_until, created_at,
                 started_at)
VALUES (:run_id, 'external', 'RUNNING', 1, '{}', :triggered_by, :owner, :host, :pid, tidemill_now() + :lease,
        tidemill_now(), tidemill_now())

-- name: find_runs
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run WHERE run_id IN ({texts:runs})

-- name: find_with_program
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time,
--   namespace, app, name, program_kind, spec, program_bundle, retired, spark_profile
SELECT r.run_id, r.kind, r.program_id, r.schedule_id, r.job_id, r.state, r.epoch, r.failures, r.losses, r.priority,
       r.arguments, r.triggered_by, r.write_pointer, r.owner, r.host, r.pid, r.lease_until, r.kill_asked,
       nullif(r.not_before, 0) AS not_before, r.created_at, r.started_at, r.ended_at, r.exit_reason, r.log_location,
       r.facts, r.bundle, r.app_version, r.owner_process, r.exit_cause, r.first_write_pointer, r.core_time,
       p.namespace, p.app, p.name, p.kind AS program_kind, p.spec, p.bundle AS program_bundle, p.retired, p.spark_profile
  FROM run AS r LEFT JOIN program AS p ON p.program_id = r.program_id
 WHERE r.run_id = :run_id

-- name: find_moved
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- The attempts that are over, or to be ended. The state is no plain column here, as in `renew_leases`.
SELECT r.run_id, r.kind, r.program_id, r.schedule_id, r.job_id, r.state, r.epoch, r.failures, r.losses, r.priority,
       r.arguments, r.triggered_by, r.write_pointer, r.owner, r.host, r.pid, r.lease_until, r.kill_asked,
       nullif(r.not_before, 0) AS not_before, r.created_at, r.started_at, r.ended_at, r.exit_reason, r.log_location,
       r.facts, r.bundle, r.app_version, r.owner_process, r.exit_cause, r.first_write_pointer, r.core_time
  FROM {rows:held(run_id text, epoch bigint)} AS h JOIN run AS r ON r.run_id = h.run_id
 WHERE r.epoch <> h.epoch OR r.state || '' NOT IN ('STARTING', 'RUNNING')

-- name: list_newest
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run WHERE (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_of_namespace
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE namespace = :namespace AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_ended_of_namespace
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run {indexed_by:run_ended_of_namespace}
 WHERE namespace = :namespace AND state = :state AND state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_of_program
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE program_id = :program_id AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_of_schedule
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- Cost: with a program or a state also the other runs of the schedule.
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE schedule_id = :schedule_id AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
   AND program_id = coalesce(CAST(:program_id AS TEXT), program_id) AND state = coalesce(CAST(:state AS TEXT), state)
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_of_workflow
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- Cost: the nodes of the workflow.
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE run_id IN (SELECT node.run_id FROM workflow_node AS node WHERE node.workflow_id = :workflow)
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
   AND program_id = coalesce(CAST(:program_id AS TEXT), program_id)
   AND coalesce(namespace, '') = coalesce(CAST(:namespace AS TEXT), namespace, '') AND state = coalesce(CAST(:state AS TEXT), state)
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_ended_in
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE state = :state AND state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_ended_of_program
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run {indexed_by:run_ended_of_program}
 WHERE program_id = :program_id AND state = :state AND state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_pending
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- Cost: the runs that are pending.
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE state = 'PENDING' AND program_id = coalesce(CAST(:program_id AS TEXT), program_id)
   AND coalesce(namespace, '') = coalesce(CAST(:namespace AS TEXT), namespace, '')
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: list_under_way
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- Cost: the runs with an attempt under way.
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run
 WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND state = :state
   AND coalesce(program_id, '') = coalesce(CAST(:program_id AS TEXT), program_id, '')
   AND coalesce(namespace, '') = coalesce(CAST(:namespace AS TEXT), namespace, '')
   AND (created_at, run_id) < (:created_before, :before) AND created_at >= :since
 ORDER BY created_at DESC, run_id DESC LIMIT :most

-- name: find_unfinished
-- gives: found
SELECT 1 AS found WHERE EXISTS (SELECT 1 FROM run
                        WHERE state = 'PENDING'
                          AND (SELECT 1 FROM program WHERE program.program_id = run.program_id
                                AND (program.bundle IN ({texts:avoided})
                                     OR program.program_id IN ({texts:avoided}) OR 'profile:' || program.spark_profile IN ({texts:avoided}))) IS NULL)
            OR EXISTS (SELECT 1 FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING'))

-- name: list_unloaded
-- gives: bundle, runs, reason
SELECT bundle, count(*) AS runs, max(exit_reason) AS reason FROM run
 WHERE state = 'PENDING' AND coalesce(exit_cause = 'unloaded', FALSE)
 GROUP BY bundle ORDER BY bundle

-- name: list_lacking
-- gives: profile, runs, reason
SELECT program.spark_profile AS profile, count(*) AS runs, max(run.exit_reason) AS reason
  FROM run JOIN program ON program.program_id = run.program_id
 WHERE run.state = 'PENDING' AND coalesce(run.exit_cause = 'lacking', FALSE)
 GROUP BY program.spark_profile ORDER BY program.spark_profile

-- name: list_live
-- gives: run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments,
--   triggered_by, write_pointer, owner, host, pid, lease_until, kill_asked, not_before, created_at, started_at,
--   ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
-- What holds a lease: the partial index has no others.
SELECT run_id, kind, program_id, schedule_id, job_id, state, epoch, failures, losses, priority, arguments, triggered_by,
       write_pointer, owner, host, pid, lease_until, kill_asked, nullif(not_before, 0) AS not_before, created_at, started_at,
       ended_at, exit_reason, log_location, facts, bundle, app_version, owner_process, exit_cause, first_write_pointer, core_time
  FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') ORDER BY run_id

-- name: ask_kill
-- locks: run
UPDATE run SET state = 'STOPPING', kill_asked = 1
 WHERE run_id = :run_id AND state = :state AND state IN ('STARTING', 'RUNNING')
