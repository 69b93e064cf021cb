-- name: find_datasets
-- gives: namespace, name, kind
-- Data sets by the beginning of the name, of one namespace or of all.
SELECT namespace, name, kind FROM dataset {indexed_by:dataset_prefix}
 WHERE dropped_at IS NULL AND name {by_bytes} >= :text AND name {by_bytes} < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name {by_bytes}, namespace LIMIT :limit

-- name: find_apps
-- gives: namespace, name
SELECT namespace, name FROM app {indexed_by:app_prefix}
 WHERE deleted = 0 AND name {by_bytes} >= :text AND name {by_bytes} < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name {by_bytes}, namespace LIMIT :limit

-- name: find_programs
-- gives: namespace, app, name
SELECT namespace, app, name FROM program {indexed_by:program_prefix}
 WHERE retired = 0 AND name {by_bytes} >= :text AND name {by_bytes} < :upto
   AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name {by_bytes}, namespace, app LIMIT :limit

-- name: find_programs_of_app
-- gives: namespace, app, name
SELECT namespace, app, name FROM program
 WHERE namespace = :namespace AND app = :app AND retired = 0
   AND name {by_bytes} >= :text AND name {by_bytes} < :upto
 ORDER BY name LIMIT :limit

-- name: find_schedules
-- gives: namespace, app, name
SELECT namespace, app, name FROM schedule {indexed_by:schedule_prefix}
 WHERE name {by_bytes} >= :text AND name {by_bytes} < :upto AND (:namespace = '' OR namespace = :namespace)
 ORDER BY name {by_bytes}, namespace, app LIMIT :limit

-- name: find_schedules_of_app
-- gives: namespace, app, name
SELECT namespace, app, name FROM schedule
 WHERE namespace = :namespace AND app = :app AND name {by_bytes} >= :text AND name {by_bytes} < :upto
 ORDER BY name LIMIT :limit

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
