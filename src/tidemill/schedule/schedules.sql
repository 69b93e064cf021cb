-- name: lock_schedules
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id {for_update}

-- name: share_listening
-- Locked against change, so that nobody suspends or replaces a schedule while its job is fed.
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) AND status = 'SCHEDULED' ORDER BY schedule_id {for_share}

-- name: read_schedules
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id

-- name: find_schedule
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE namespace = :namespace AND app = :app AND name = :name

-- name: list_schedules
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule ORDER BY namespace, app, name

-- name: list_by_program
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE program_id = :program_id ORDER BY namespace, app, name

-- name: list_by_event_key
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status
  FROM schedule WHERE schedule_id IN (SELECT schedule_id FROM trigger_key WHERE event_key = :event_key)
 ORDER BY namespace, app, name

-- name: read_trigger_keys
SELECT event_key, schedule_id, trigger_no FROM trigger_key WHERE event_key IN ({texts:event_keys})
 ORDER BY event_key, schedule_id, trigger_no

-- name: read_timers
SELECT trigger_no, next_fire_at FROM timer WHERE schedule_id = :schedule_id ORDER BY next_fire_at

-- name: read_boundaries
SELECT trigger_no, next_at, last_at FROM boundary WHERE schedule_id = :schedule_id
