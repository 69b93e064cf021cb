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

-- name: list_by_name
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule {indexed_by:schedule_prefix} WHERE name = :name ORDER BY namespace, app

-- name: list_schedules
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
-- A range of names: all, or those of an app.
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule
 WHERE (namespace, app, name) > (:after_namespace, :after_app, :after_name)
   AND (namespace, app, name) < (:until_namespace, :until_app, :until_name)
 ORDER BY namespace, app, name LIMIT :limit

-- name: list_by_status
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
-- The range begins with the status, so that PostgreSQL reads no other index: of a range it knows the first column.
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule
 WHERE (status, namespace, app, name) > (:status, :after_namespace, :after_app, :after_name)
   AND (status, namespace, app, name) < (:status, :until_namespace, :until_app, :until_name)
 ORDER BY status, namespace, app, name LIMIT :limit

-- name: list_by_program
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
-- (With EXISTS, PostgreSQL would make a hash table of all trigger types.)
SELECT schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
       suspended_at, suspended_mode
  FROM schedule
 WHERE (program_id, namespace, app, name) > (:program_id, :after_namespace, :after_app, :after_name)
   AND (program_id, namespace, app, name) < (:program_id, :until_namespace, :until_app, :until_name)
   AND (:status = '' OR status = :status)
   AND (:trigger_type = ''
        OR (SELECT count(*) FROM trigger_type AS t
             WHERE t.schedule_id = schedule.schedule_id AND t.trigger_type = :trigger_type) = 1)
 ORDER BY program_id, namespace, app, name LIMIT :limit

-- name: list_by_trigger_type
-- gives: schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status,
--   suspended_at, suspended_mode
SELECT schedule.schedule_id, t.namespace, t.app, t.name, generation, since_seq, since_at, program_id, spec, owner,
       status, suspended_at, suspended_mode
  FROM trigger_type AS t JOIN schedule ON schedule.schedule_id = t.schedule_id
 WHERE (t.trigger_type, t.namespace, t.app, t.name) > (:trigger_type, :after_namespace, :after_app, :after_name)
   AND (t.trigger_type, t.namespace, t.app, t.name) < (:trigger_type, :until_namespace, :until_app, :until_name)
   AND (:status = '' OR status = :status)
 ORDER BY t.trigger_type, t.namespace, t.app, t.name LIMIT :limit

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
-- gives: trigger_no, next_at, last_at, zone
SELECT trigger_no, next_at, last_at, zone FROM boundary WHERE schedule_id = :schedule_id

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
