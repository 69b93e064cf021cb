-- name: lock_schedules
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
-- locks: schedule
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id {for_update}

-- name: share_listening
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
-- locks: schedule
-- Locked against change, so that no process suspends or replaces a schedule while its job is fed. Schedules that are
-- suspended in the modes hold and backlog listen too: a checker leaves their jobs.
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) AND (status = 'SCHEDULED' OR suspended_mode <> 'drop')
 ORDER BY schedule_id {for_share}

-- name: read_schedules
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id

-- name: find_schedule
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE namespace = :namespace AND app = :app AND name = :name

-- name: list_schedules
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE (namespace, app, name) > (:after_namespace, :after_app, :after_name)
 ORDER BY namespace, app, name LIMIT :limit

-- name: list_by_program
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE program_id = :program_id ORDER BY namespace, app, name

-- name: list_by_event_key
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE schedule_id IN (SELECT schedule_id FROM trigger_key WHERE event_key = :event_key)
 ORDER BY namespace, app, name

-- name: read_trigger_keys
-- gives: event_key, schedule_id, trigger_no
SELECT event_key, schedule_id, trigger_no FROM trigger_key WHERE event_key IN ({texts:event_keys})
 ORDER BY event_key, schedule_id, trigger_no

-- name: read_timers
-- gives: trigger_no, next_fire_at
SELECT trigger_no, next_fire_at FROM timer WHERE schedule_id = :schedule_id ORDER BY next_fire_at

-- name: read_boundaries
-- gives: trigger_no, next_at, last_at
SELECT trigger_no, next_at, last_at FROM boundary WHERE schedule_id = :schedule_id

-- name: list_suspended
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule WHERE suspended_at >= :since AND suspended_at < :until ORDER BY namespace, app, name

-- name: list_passed
-- gives: topic, messages, first_seq, first_n, last_seq, last_n
SELECT topic, messages, first_seq, first_n, last_seq, last_n
  FROM passed_while_suspended WHERE schedule_id = :schedule_id ORDER BY topic
