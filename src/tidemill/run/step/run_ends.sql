-- name: lock_limits
-- gives: limit_key
-- locks: slot_limit
-- Under these rows a checker counts the held slots and registers the waiting jobs. It did so before us, and the jobs
-- are woken below. Or it comes after us and finds the slot free. Without the lock a wake-up was lost on PostgreSQL.
SELECT limit_key FROM slot_limit
 WHERE limit_key IN (SELECT limit_key FROM slot WHERE run_id IN ({texts:runs}))
 ORDER BY limit_key {for_update}

-- name: wake_waiting_jobs
-- locks: job, at slot_limit
-- Locked jobs are skipped, so the rank is not job's: the block that holds a job's row looks at that job, or makes it
-- due. Only the jobs are woken that can start now: of thousands that wait for a slot, the next one. The order is that of
-- `jobs.turn`. A job that is woken and leaves the queue without the slot wakes all jobs behind it.
UPDATE job SET next_check_at = tidemill_now()
 WHERE job_id IN (SELECT job_id FROM job
                   WHERE job_id IN (SELECT w.job_id
                                      FROM (SELECT w.job_id, w.most, s.others,
                                                   row_number() OVER (
                                                       PARTITION BY w.wait_key
                                                       ORDER BY CASE WHEN j.deadline <= tidemill_now() THEN 0 ELSE 1 END,
                                                                j.priority DESC,
                                                                CASE WHEN j.deadline IS NULL THEN 1 ELSE 0 END,
                                                                j.deadline, j.created_at, w.job_id
                                                   ) - 1 AS ahead
                                              FROM (SELECT own.limit_key,
                                                           (SELECT count(*) FROM slot AS held
                                                             WHERE held.limit_key = own.limit_key) - 1 AS others
                                                      FROM slot AS own WHERE own.run_id = :run_id) AS s
                                              JOIN job_waits AS w
                                                ON w.wait_key IN ('slots:' || s.limit_key, 'idle:' || s.limit_key)
                                              JOIN job AS j ON j.job_id = w.job_id
                                             WHERE w.most IS NULL OR s.others < w.most) AS w
                                     WHERE w.most IS NULL OR w.others + w.ahead < w.most) {skip_locked})

-- name: free_slots
-- locks: nothing, at slot_limit
DELETE FROM slot WHERE run_id = :run_id

-- name: announce_start
-- The begin holds the tick. A schedule that is created at the same time has committed before this look, or it hears
-- later runs only.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'program', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'program' AND seq = {commit_seq}),
       tidemill_now(), 'run_started', :event_key, :payload
 WHERE EXISTS (SELECT 1 FROM trigger_key WHERE event_key = :event_key)
