-- name: list_starters
-- gives: schedule_id, program_id
-- The schedules of these programs.
SELECT schedule_id, program_id FROM schedule WHERE program_id IN ({texts:program_ids})
 ORDER BY program_id, namespace, app, name LIMIT :limit

-- name: list_listeners
-- gives: event_key, schedule_id
SELECT event_key, schedule_id FROM trigger_key WHERE event_key IN ({texts:event_keys})
 ORDER BY event_key, schedule_id LIMIT :limit

-- name: list_keys
-- gives: event_key, schedule_id
SELECT event_key, schedule_id FROM trigger_key WHERE schedule_id IN ({texts:schedule_ids})
 ORDER BY schedule_id, event_key

-- name: describe_schedules
-- gives: schedule_id, namespace, app, name, program_id, status, at
-- With the time at which the schedule last started a run: the end of an index for each schedule.
SELECT schedule_id, namespace, app, name, program_id, status,
       (SELECT run.created_at FROM run WHERE run.schedule_id = schedule.schedule_id
         ORDER BY run.created_at DESC LIMIT 1) AS at
  FROM schedule WHERE schedule_id IN ({texts:schedule_ids})

-- name: describe_programs
-- gives: program_id, state, at
-- The state of the newest run, and the end of the last run that has committed, which no sandbox has: the ends of two
-- indexes.
SELECT program_id,
       (SELECT run.state FROM run WHERE run.program_id = program.program_id
         ORDER BY run.created_at DESC LIMIT 1) AS state,
       (SELECT run.ended_at FROM run WHERE run.program_id = program.program_id AND run.state = 'COMPLETED'
           AND coalesce(run.exit_reason, '') <> 'sandbox' ORDER BY run.ended_at DESC LIMIT 1) AS at
  FROM program WHERE program_id IN ({texts:program_ids})

-- name: describe_datasets
-- gives: namespace, name, kind, published_at, program_id, found_at, broken_since
-- With the last commit that published data, the program of its run, and the last file that was found: the ends of
-- indexes.
SELECT d.namespace, d.name, d.kind,
       (SELECT c.at FROM partition_change AS c WHERE c.dataset_id = d.dataset_id AND c.op <> 'drop'
         ORDER BY c.commit_seq DESC LIMIT 1) AS published_at,
       (SELECT run.program_id FROM run
         WHERE run.run_id = (SELECT c.run_id FROM partition_change AS c
                              WHERE c.dataset_id = d.dataset_id AND c.op <> 'drop'
                              ORDER BY c.commit_seq DESC LIMIT 1)) AS program_id,
       (SELECT max(f.first_seen) FROM inbox_file AS f {indexed_by:inbox_file_seen}
         WHERE f.dataset_id = d.dataset_id) AS found_at,
       (SELECT e.broken_since FROM expectation AS e WHERE e.dataset_id = d.dataset_id) AS broken_since
  FROM {rows:wanted(namespace text, name text)} AS w
  JOIN dataset AS d ON d.namespace = w.namespace AND d.name = w.name AND d.dropped_at IS NULL

-- name: list_ids
-- gives: schedule_id
-- Schedules by name, of one namespace or of all.
SELECT schedule_id FROM schedule
 WHERE (namespace, app, name) > (:after_namespace, '', '')
   AND (namespace, app, name) < (:until_namespace, :until_app, :until_name)
 ORDER BY namespace, app, name LIMIT :limit
