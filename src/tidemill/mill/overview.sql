-- name: list_failing
-- gives: run_id
-- The newest run that has ended of each program that is there, if it failed. Cost: a look-up for each program, and two
-- for each program that has ever failed. With the last CASE no database begins with all runs that have ever failed.
SELECT newest.run_id
  FROM (SELECT CASE WHEN (SELECT 1 FROM run {indexed_by:run_failure}
                           WHERE run.program_id = program.program_id AND run.state = 'FAILED' LIMIT 1) IS NOT NULL
                    THEN (SELECT run_id FROM run
                           WHERE run.program_id = program.program_id AND ended_at IS NOT NULL
                           ORDER BY created_at DESC LIMIT 1) END AS run_id
          FROM program WHERE program.namespace = coalesce(CAST(:namespace AS TEXT), program.namespace)) AS newest
  JOIN run ON run.run_id = newest.run_id
 WHERE CASE run.state WHEN 'FAILED' THEN 1 END = 1
 ORDER BY newest.run_id DESC LIMIT :limit

-- name: list_open_alerts
-- gives: alert_id, rule, subject, why, since
-- Cost: the alerts that have not ended.
SELECT alert_id, rule, subject, why, since FROM alert
 WHERE state <> 'RESOLVED' AND state = 'OPEN' AND namespace = coalesce(CAST(:namespace AS TEXT), namespace)
 ORDER BY alert_id DESC LIMIT :limit

-- name: list_broken
-- gives: dataset_id, namespace, name
-- Cost: the expectations that are broken.
SELECT d.dataset_id, d.namespace, d.name
  FROM expectation AS e {indexed_by:expectation_broken} JOIN dataset AS d ON d.dataset_id = e.dataset_id
 WHERE e.broken_since IS NOT NULL AND d.dropped_at IS NULL
   AND d.namespace = coalesce(CAST(:namespace AS TEXT), d.namespace)
 ORDER BY e.broken_since LIMIT :limit

-- name: list_quarantines
-- gives: dataset_id, namespace, name, files
-- The inboxes that have files in quarantine, and the number of these files up to :most. Cost: a look-up for each inbox.
SELECT q.dataset_id, q.namespace, q.name,
       (SELECT count(*)
          FROM (SELECT 1 FROM inbox_file AS f {indexed_by:inbox_file_refused}
                 WHERE f.dataset_id = q.dataset_id AND f.status = 'QUARANTINED' LIMIT :most) AS bad) AS files
  FROM (SELECT d.dataset_id, d.namespace, d.name
          FROM dataset AS d
         WHERE d.kind = 'inbox' AND d.dropped_at IS NULL
           AND d.namespace = coalesce(CAST(:namespace AS TEXT), d.namespace)
           AND EXISTS (SELECT 1 FROM inbox_file AS f {indexed_by:inbox_file_refused}
                        WHERE f.dataset_id = d.dataset_id AND f.status = 'QUARANTINED')
         ORDER BY d.namespace, d.name LIMIT :limit) AS q
 ORDER BY q.namespace, q.name

-- name: find_first_quarantined
-- gives: name, error, failures
SELECT name, error, failures FROM inbox_file {indexed_by:inbox_file_refused}
 WHERE dataset_id = :dataset_id AND status = 'QUARANTINED' ORDER BY first_seen LIMIT 1

-- name: list_misdated
-- gives: dataset_id, namespace, name
-- The file sets with partitions without a time, or with a complete slot further ahead of the clock than is believed,
-- which may have lost its partitions since. Cost: some look-ups for each watermark.
SELECT d.dataset_id, d.namespace, d.name
  FROM dataset AS d JOIN watermark AS w ON w.dataset_id = d.dataset_id
 WHERE d.kind = 'fileset' AND d.dropped_at IS NULL
   AND d.namespace = coalesce(CAST(:namespace AS TEXT), d.namespace)
   AND ((SELECT p.partition_key FROM parked_partition AS p
          WHERE p.dataset_id = d.dataset_id ORDER BY p.partition_key LIMIT 1) IS NOT NULL
        OR (SELECT s.ends_at FROM time_slot AS s {indexed_by:time_slot_complete}
             WHERE s.dataset_id = d.dataset_id AND s.complete = 1
             ORDER BY s.ends_at DESC LIMIT 1) > tidemill_now() * 1000 + w.max_ahead)
 ORDER BY d.namespace, d.name LIMIT :limit

-- name: list_satisfied
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- The jobs whose trigger has been satisfied for longest. A job of a suspended schedule waits for a person.
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM job AS j {indexed_by:job_satisfied} JOIN schedule AS s ON s.schedule_id = j.schedule_id
 WHERE j.satisfied_at IS NOT NULL AND s.status = 'SCHEDULED'
 ORDER BY j.satisfied_at, j.job_id LIMIT :limit

-- name: list_unsatisfied
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- The oldest jobs whose trigger is not satisfied. Cost: the page, and the older jobs of suspended schedules.
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM job AS j {indexed_by:job_state} JOIN schedule AS s ON s.schedule_id = j.schedule_id
 WHERE j.state = 'PENDING_TRIGGER' AND s.status = 'SCHEDULED'
 ORDER BY j.job_id LIMIT :limit

-- name: list_waiting_in
-- only: sqlite
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- Both, of one namespace. Cost: the schedules of the namespace.
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM schedule AS s {indexed_by:schedule_status} JOIN job AS j ON j.schedule_id = s.schedule_id
 WHERE s.status = 'SCHEDULED' AND s.namespace = :namespace
 ORDER BY coalesce(j.satisfied_at, j.created_at), j.job_id LIMIT :limit

-- name: list_waiting_in
-- only: postgres
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- (A join reads all jobs where the namespace has few. An array is looked up, value by value.)
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM job AS j
 WHERE j.schedule_id = ANY (ARRAY(SELECT s.schedule_id FROM schedule AS s
                                   WHERE s.status = 'SCHEDULED' AND s.namespace = :namespace
                                   ORDER BY s.status, s.namespace, s.app, s.name))
 ORDER BY coalesce(j.satisfied_at, j.created_at), j.job_id LIMIT :limit

-- name: count_jobs
-- gives: jobs
SELECT count(*) AS jobs FROM (SELECT 1 FROM job LIMIT :limit) AS waiting

-- name: count_jobs_in
-- only: sqlite
-- gives: jobs
-- Cost: the schedules of the namespace.
SELECT count(*) AS jobs
  FROM (SELECT 1 FROM schedule AS s {indexed_by:schedule_name} JOIN job AS j ON j.schedule_id = s.schedule_id
         WHERE s.namespace = :namespace LIMIT :limit) AS waiting

-- name: count_jobs_in
-- only: postgres
-- gives: jobs
-- As list_waiting_in.
SELECT count(*) AS jobs
  FROM (SELECT 1 FROM job AS j
         WHERE j.schedule_id = ANY (ARRAY(SELECT s.schedule_id FROM schedule AS s WHERE s.namespace = :namespace
                                           ORDER BY s.namespace, s.app, s.name))
         LIMIT :limit) AS waiting

-- name: count_feeds
-- gives: feeds
SELECT count(*) AS feeds
  FROM (SELECT 1 FROM dataset
         WHERE dropped_at IS NULL AND namespace = coalesce(CAST(:namespace AS TEXT), namespace) LIMIT :limit) AS feeds

-- name: count_arrivals
-- gives: event_key, hour, arrivals
-- The messages about each data set in each hour, up to :most. Cost: these messages, by index.
SELECT k.event_key, h.hour,
       (SELECT count(*)
          FROM (SELECT 1 FROM message AS m {indexed_by:message_data}
                 WHERE m.topic = 'data' AND m.event_key = k.event_key AND m.at >= h.begins_at AND m.at < h.ends_at
                 LIMIT :most) AS few) AS arrivals
  FROM {rows:keys(event_key text)} AS k
 CROSS JOIN {rows:hours(hour bigint, begins_at bigint, ends_at bigint)} AS h

-- name: list_last_arrivals
-- gives: event_key, at
SELECT k.event_key,
       (SELECT max(m.at) FROM message AS m {indexed_by:message_data}
         WHERE m.topic = 'data' AND m.event_key = k.event_key) AS at
  FROM {rows:keys(event_key text)} AS k

-- name: count_waiting_files
-- gives: files
SELECT count(*) AS files
  FROM (SELECT 1 FROM inbox_file {indexed_by:inbox_file_open}
         WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') LIMIT :limit) AS waiting

-- name: count_waiting_partitions
-- gives: partitions
SELECT count(*) AS partitions
  FROM (SELECT 1 FROM consumer_work
         WHERE state = 'new'
           AND consumer_id IN (SELECT consumer_id FROM consumer WHERE dataset_id = :dataset_id) LIMIT :limit) AS waiting
