-- name: postpone
-- wakes: time
-- The longer it has failed the later, up to an hour, and never sooner than :wait.
UPDATE window_program
   SET failing_since = found.since,
       retry_at = tidemill_now() + CASE WHEN tidemill_now() - found.since > 3600000 THEN 3600000
                                        WHEN tidemill_now() - found.since > :wait THEN tidemill_now() - found.since
                                        ELSE :wait END
  FROM (SELECT p.program_id,
               coalesce(p.failing_since,
                        (SELECT min(f.since) FROM window_failure AS f WHERE f.program_id = p.program_id),
                        tidemill_now()) AS since
          FROM window_program AS p WHERE p.program_id = :id) AS found
 WHERE window_program.program_id = found.program_id

-- name: rearm
-- wakes: time
-- The next time at which an input becomes idle whose watermark holds a program, while another input is further.
UPDATE window_program SET retry_at = found.idle_at
  FROM (SELECT p.program_id, min(i.idle_at) AS idle_at
          FROM window_program AS p CROSS JOIN
               (SELECT n.program_id, w.value - n.lag AS closed,
                       w.idle_timeout + coalesce((SELECT c.at FROM partition_change AS c
                                                   WHERE c.dataset_id = d.dataset_id
                                                   ORDER BY c.commit_seq DESC LIMIT 1), d.created_at) AS idle_at
                  FROM window_input AS n CROSS JOIN dataset AS d CROSS JOIN watermark AS w
                 WHERE n.program_id IN ({texts:ids}) AND d.dataset_id = n.dataset_id
                   AND w.dataset_id = n.dataset_id AND w.idle_timeout IS NOT NULL) AS i
         WHERE p.program_id IN ({texts:ids}) AND i.program_id = p.program_id AND i.idle_at > tidemill_now()
           AND (i.closed IS NULL OR i.closed <= coalesce(p.computed, -2305843009213693952))
           AND EXISTS (SELECT 1 FROM window_input AS o CROSS JOIN watermark AS f
                        WHERE o.program_id = p.program_id AND f.dataset_id = o.dataset_id
                          AND f.value - o.lag > coalesce(p.computed, -2305843009213693952))
         GROUP BY p.program_id) AS found
 WHERE window_program.program_id = found.program_id
   AND (window_program.retry_at IS NULL OR window_program.retry_at > found.idle_at)

-- name: note_failures
INSERT INTO window_failure (program_id, window_end, window_start, reason, partitions, since, tried_at)
SELECT :program_id, f.window_end, f.window_start, f.reason, f.partitions, tidemill_now(), tidemill_now()
  FROM {rows:failures(window_start bigint, window_end bigint, reason text, partitions text)} AS f
 WHERE true
    ON CONFLICT (program_id, window_end, window_start) DO UPDATE
   SET reason = excluded.reason, partitions = excluded.partitions, tried_at = excluded.tried_at

-- name: forget_failures
DELETE FROM window_failure
 WHERE program_id = :program_id
   AND (window_end, window_start) IN (SELECT w.window_end, w.window_start
                                        FROM {rows:windows(window_start bigint, window_end bigint)} AS w)

-- name: forget_failures_after
-- A reset: windows that end later are planned again.
DELETE FROM window_failure WHERE program_id = :program_id AND window_end > :from_end

-- name: list_failures
-- gives: window_start, window_end, reason, partitions, since, tried_at
-- What was tried last comes last. (Few windows are postponed, so they are sorted.)
SELECT window_start, window_end, reason, partitions, since, tried_at FROM window_failure
 WHERE program_id = :program_id ORDER BY tried_at, window_end, window_start LIMIT :limit

-- name: list_postponed
-- gives: window_start, window_end
-- Without reason and partitions, since there may be many windows.
SELECT window_start, window_end FROM window_failure
 WHERE program_id = :program_id ORDER BY tried_at, window_end, window_start LIMIT :limit

-- name: find_due
-- gives: program_id
SELECT program_id FROM window_program WHERE retry_at <= tidemill_now() ORDER BY program_id

-- name: find_next_due
-- gives: retry_at
SELECT min(retry_at) AS retry_at FROM window_program WHERE retry_at IS NOT NULL

-- name: clear_due
-- So that they are announced once: what comes of it says when to announce them again.
UPDATE window_program SET retry_at = NULL
 WHERE program_id IN ({texts:ids}) AND retry_at <= tidemill_now()
