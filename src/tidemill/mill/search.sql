-- name: find_datasets
-- gives: namespace, name, kind
-- Data sets by the beginning of the name, of one namespace or of all.
SELECT namespace, name, kind FROM dataset {indexed_by:dataset_prefix}
 WHERE dropped_at IS NULL AND name >= :text AND name < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name, namespace LIMIT :limit

-- name: find_apps
-- gives: namespace, name
SELECT namespace, name FROM app {indexed_by:app_prefix}
 WHERE deleted = 0 AND name >= :text AND name < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name, namespace LIMIT :limit

-- name: find_programs
-- gives: namespace, app, name
SELECT namespace, app, name FROM program {indexed_by:program_prefix}
 WHERE retired = 0 AND name >= :text AND name < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name, namespace, app LIMIT :limit

-- name: find_programs_of_app
-- gives: namespace, app, name
SELECT namespace, app, name FROM program
 WHERE namespace = :namespace AND app = :app AND retired = 0
   AND name >= :text AND name < :upto
 ORDER BY name LIMIT :limit

-- name: find_schedules
-- gives: namespace, app, name
SELECT namespace, app, name FROM schedule {indexed_by:schedule_prefix}
 WHERE name >= :text AND name < :upto AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name, namespace, app LIMIT :limit

-- name: find_schedules_of_app
-- gives: namespace, app, name
SELECT namespace, app, name FROM schedule
 WHERE namespace = :namespace AND app = :app AND name >= :text AND name < :upto
 ORDER BY name LIMIT :limit

-- name: find_consumers
-- gives: namespace, dataset, name
-- Consumers by the beginning of the name, of the data sets of one namespace or of all.
SELECT d.namespace, d.name AS dataset, c.name
  FROM consumer AS c {indexed_by:consumer_prefix} JOIN dataset AS d ON d.dataset_id = c.dataset_id
 WHERE c.name >= :text AND c.name < :upto
   AND d.dropped_at IS NULL AND (:namespace = '' OR d.namespace = :namespace)
 ORDER BY c.name, d.namespace, d.name LIMIT :limit

-- name: find_consumers_of
-- gives: namespace, dataset, name
-- The consumers of programs.
SELECT d.namespace, d.name AS dataset, c.name
  FROM consumer AS c {indexed_by:consumer_prefix} JOIN dataset AS d ON d.dataset_id = c.dataset_id
 WHERE c.name IN ({texts:programs})
   AND d.dropped_at IS NULL AND (:namespace = '' OR d.namespace = :namespace)
 ORDER BY c.name, d.namespace, d.name LIMIT :limit

-- name: find_subscribers
-- gives: name
SELECT name FROM outside_subscriber WHERE name >= :text AND name < :upto ORDER BY name LIMIT :limit

-- name: find_alert_rules
-- gives: namespace, name
SELECT namespace, name FROM alert_rule {indexed_by:alert_rule_prefix}
 WHERE name >= :text AND name < :upto AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name, namespace LIMIT :limit

-- name: find_hooks
-- gives: event_key
-- Hooks to which a schedule listens: one look-up for each, as for topics.
WITH RECURSIVE hooks (event_key) AS (
    SELECT min(event_key) FROM trigger_key
     WHERE event_key >= :text AND event_key < :upto
     UNION ALL
    SELECT (SELECT min(trigger_key.event_key) FROM trigger_key
             WHERE trigger_key.event_key > hooks.event_key AND trigger_key.event_key < :upto)
      FROM hooks WHERE hooks.event_key IS NOT NULL
)
SELECT event_key FROM hooks WHERE event_key IS NOT NULL LIMIT :limit

-- name: find_transaction
-- gives: write_pointer
SELECT tx.write_pointer FROM tx
 WHERE tx.write_pointer = :write_pointer
   AND (CAST(:namespace AS TEXT) IS NULL
        OR EXISTS (SELECT 1 FROM run WHERE run.run_id = tx.run_id AND run.namespace = :namespace))

-- name: find_topics
-- gives: topic
-- Topics that have messages: one look-up for each (a recursive walk over the names).
WITH RECURSIVE topics (topic) AS (
    SELECT min(topic) FROM message WHERE topic >= :text AND topic < :upto
     UNION ALL
    SELECT (SELECT min(topic) FROM message WHERE message.topic > topics.topic AND message.topic < :upto)
      FROM topics WHERE topics.topic IS NOT NULL
)
SELECT topic FROM topics WHERE topic IS NOT NULL LIMIT :limit

-- name: find_runs
-- gives: run_id, program_id
SELECT run_id, program_id FROM run WHERE run_id >= :text AND run_id < :upto ORDER BY run_id LIMIT :limit

-- name: find_jobs
-- gives: job_id, schedule_id
-- Open jobs, then ended jobs: each kind stops at :limit.
SELECT open.job_id, open.schedule_id
  FROM (SELECT job_id, schedule_id FROM job WHERE job_id >= :text AND job_id < :upto
         ORDER BY job_id LIMIT :limit) AS open
 UNION ALL
SELECT ended.job_id, ended.schedule_id
  FROM (SELECT job_id, schedule_id FROM job_history WHERE job_id >= :text AND job_id < :upto
         ORDER BY job_id LIMIT :limit) AS ended

-- name: find_files
-- gives: name
-- The contents of one name are next to each other: a name with two contents comes twice.
SELECT name FROM inbox_file
 WHERE dataset_id = :dataset_id AND name >= :text AND name < :upto ORDER BY name LIMIT :limit

-- name: find_partitions
-- gives: partition_key
-- A partition of several appends comes several times.
SELECT partition_key FROM partition_change {indexed_by:partition_current}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND op <> 'drop'
   AND partition_key >= :text AND partition_key < :upto
 ORDER BY partition_key LIMIT :limit
