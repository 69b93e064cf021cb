-- name: lock_open
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- locks: job
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE schedule_id IN ({texts:schedule_ids}) ORDER BY schedule_id {for_update}

-- name: lock_unchanged
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- locks: job
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job
 WHERE (job_id, revision) IN (SELECT r.job_id, r.revision FROM {rows:jobs(job_id text, revision bigint)} AS r)
 ORDER BY schedule_id, job_id {for_update}

-- name: lock_due
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- locks: job
-- Skipped when locked: another checker has it.
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE next_check_at <= :now ORDER BY next_check_at LIMIT :limit {skip_locked}

-- name: find_unfinished
-- gives: job_id
-- What a next time or boundary waits for. Asked under the lock of the row that waits, in a statement of its own: it sees
-- what others have committed until then.
SELECT job_id FROM job WHERE job_id IN ({texts:job_ids})
 UNION ALL
SELECT job_id FROM run WHERE job_id IN ({texts:job_ids}) AND ended_at IS NULL

-- name: find_job
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE job_id = :job_id

-- name: list_jobs
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE job_id > :after ORDER BY job_id LIMIT :limit

-- name: list_by_state
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE state = :state AND job_id > :after ORDER BY job_id LIMIT :limit

-- name: list_in_namespace
-- only: sqlite
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- Cost: the schedules of the namespace, each of which has at most one job.
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM schedule AS s {indexed_by:schedule_name} JOIN job AS j ON j.schedule_id = s.schedule_id
 WHERE s.namespace = :namespace AND j.job_id > :after AND (:state = '' OR j.state = :state)
 ORDER BY j.job_id LIMIT :limit

-- name: list_in_namespace
-- only: postgres
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- (A join reads all jobs where the namespace has few. An array is looked up, value by value.)
SELECT j.job_id, j.schedule_id, j.generation, j.state, j.created_at, j.satisfied_at, j.next_check_at, j.priority,
       j.deadline, j.progress, j.verdict, j.revision
  FROM job AS j
 WHERE j.schedule_id = ANY (ARRAY(SELECT s.schedule_id FROM schedule AS s WHERE s.namespace = :namespace
                                   ORDER BY s.namespace, s.app, s.name))
   AND j.job_id > :after AND (:state = '' OR j.state = :state)
 ORDER BY j.job_id LIMIT :limit

-- name: list_by_schedule
-- gives: job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline,
--   progress, verdict, revision
-- A schedule has few jobs.
SELECT job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at, priority, deadline, progress,
       verdict, revision
  FROM job WHERE schedule_id = :schedule_id AND job_id > :after AND (:state = '' OR state = :state)
 ORDER BY job_id LIMIT :limit

-- name: insert_jobs
-- gives: schedule_id
-- Nothing for a schedule that got its open job from another process in the same instant: feed that one.
INSERT INTO job (job_id, schedule_id, generation, state, created_at, next_check_at, priority, progress)
SELECT r.job_id, r.schedule_id, r.generation, 'PENDING_TRIGGER', tidemill_now(), tidemill_now(), r.priority, r.progress
  FROM {rows:jobs(job_id text, schedule_id text, generation bigint, priority bigint, progress text)} AS r
 WHERE true
    ON CONFLICT (schedule_id) DO NOTHING
RETURNING schedule_id

-- name: update_fed
-- locks: job
-- Due at once, also when it waits for a slot: the end of a run skips a job that we hold, so we have it looked at.
UPDATE job SET progress = r.progress, next_check_at = tidemill_now(), revision = job.revision + 1
  FROM {rows:jobs(job_id text, progress text)} AS r
 WHERE job.job_id = r.job_id

-- name: hold_jobs
-- locks: job
-- A checker that has locked a job before launches the job, and then we wait. One that locks the job later sees that
-- the schedule is suspended.
UPDATE job SET next_check_at = tidemill_now(),
               state = 'PENDING_TRIGGER', satisfied_at = NULL, deadline = NULL, revision = revision + 1
 WHERE schedule_id IN ({texts:schedule_ids})

-- name: release_jobs
-- locks: job
-- As new jobs, with what has fed them: their time-outs begin now.
UPDATE job SET next_check_at = tidemill_now(), created_at = tidemill_now(), revision = revision + 1
 WHERE schedule_id IN ({texts:schedule_ids})

-- name: insert_messages
INSERT INTO job_message (job_id, topic, seq, n, trigger_no)
SELECT r.job_id, r.topic, r.seq, r.n, r.trigger_no
  FROM {rows:messages(job_id text, topic text, seq bigint, n bigint, trigger_no bigint)} AS r

-- name: read_messages
-- gives: job_id, trigger_no, topic, seq, n
SELECT job_id, trigger_no, topic, seq, n FROM job_message WHERE job_id IN ({texts:job_ids})
 ORDER BY job_id, topic, seq, n, trigger_no

-- name: update_checked
-- locks: job, at slot_limit
-- The checker holds these rows since before it took the limits.
UPDATE job SET state = r.state, satisfied_at = r.satisfied_at, deadline = r.deadline, next_check_at = r.next_check_at,
               verdict = r.verdict, revision = job.revision + 1
  FROM {rows:jobs(job_id text, state text, satisfied_at bigint, deadline bigint, next_check_at bigint,
                  verdict text)} AS r
 WHERE job.job_id = r.job_id

-- name: delete_waits
DELETE FROM job_waits WHERE job_id IN ({texts:job_ids})

-- name: insert_waits
INSERT INTO job_waits (wait_key, job_id, most)
SELECT r.wait_key, r.job_id, r.most FROM {rows:waits(wait_key text, job_id text, most bigint)} AS r

-- name: list_waiting
-- gives: wait_key, job_id, most, priority, deadline, created_at
-- Jobs that wait for the same keys, with their turns.
SELECT w.wait_key, j.job_id, w.most, j.priority, j.deadline, j.created_at
  FROM job_waits AS w JOIN job AS j ON j.job_id = w.job_id
 WHERE w.wait_key IN ({texts:wait_keys})

-- name: lock_limits
-- gives: limit_key
-- locks: slot_limit
-- The limits of a check, and the limits for whose slots these jobs wait. A job that leaves the queue wakes the jobs behind
-- it under this lock, like the end of a run. A checker that holds the lock has either stored its jobs, or not yet read
-- the queue. Without the lock, a checker could store that its job waits for one which leaves, and nothing would wake it.
SELECT limit_key FROM slot_limit
 WHERE limit_key IN ({texts:limit_keys}
                      UNION
                     SELECT substr(wait_key, 7) FROM job_waits
                      WHERE job_id IN ({texts:job_ids}) AND substr(wait_key, 1, 6) = 'slots:')
 ORDER BY limit_key {for_update}

-- name: wake_beside
-- locks: job, at slot_limit
-- A job that leaves the queue without a run wakes the jobs that had to wait behind it. Locked jobs are skipped: the
-- block that holds a job's row looks at that job, or makes it due.
UPDATE job SET next_check_at = tidemill_now()
 WHERE job_id IN (SELECT job_id FROM job
                   WHERE job_id IN (SELECT other.job_id
                                      FROM job_waits AS own JOIN job_waits AS other ON other.wait_key = own.wait_key
                                     WHERE own.job_id IN ({texts:job_ids}))
                  {skip_locked})

-- name: wake_behind
-- locks: job, at slot_limit
-- A job that waits for a slot no more, but for a time, wakes the jobs that had to wait behind it: the slot may be free.
-- Locked jobs are skipped, as above.
UPDATE job SET next_check_at = tidemill_now()
 WHERE job_id IN (SELECT job_id FROM job
                   WHERE job_id IN (SELECT other.job_id
                                      FROM job_waits AS own JOIN job_waits AS other ON other.wait_key = own.wait_key
                                     WHERE own.job_id IN ({texts:job_ids})
                                       AND NOT (own.wait_key, own.job_id) IN
                                           (SELECT r.wait_key, r.job_id
                                              FROM {rows:waits(wait_key text, job_id text)} AS r))
                     AND NOT job_id IN ({texts:job_ids})
                  {skip_locked})

-- name: delete_jobs
-- locks: job, at slot_limit
-- Their rows are held since they were read.
DELETE FROM job WHERE job_id IN ({texts:job_ids})

-- name: delete_messages
DELETE FROM job_message WHERE job_id IN ({texts:job_ids})

-- name: insert_history
INSERT INTO job_history (job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail)
SELECT r.job_id, r.schedule_id, r.generation, r.outcome, r.run_id, r.created_at, tidemill_now(), r.detail
  FROM {rows:jobs(job_id text, schedule_id text, generation bigint, outcome text, run_id text, created_at bigint,
                  detail text)} AS r

-- name: find_ended
-- gives: job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
SELECT job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
  FROM job_history WHERE job_id = :job_id

-- name: list_ended
-- gives: job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
SELECT job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail
  FROM job_history
 WHERE schedule_id = :schedule_id AND (ended_at, job_id) < (:ended_before, :before)
 ORDER BY ended_at DESC, job_id DESC LIMIT :most
