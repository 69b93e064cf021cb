-- name: read_launches
-- gives: limit_key, launches
-- A statement of its own after the lock, as the next one.
SELECT limit_key, launches FROM slot_limit WHERE limit_key IN ({texts:limit_keys})

-- name: store_launches
-- locks: slot_limit
-- The rows are held since the constraints were checked.
UPDATE slot_limit SET launches = r.launches FROM {rows:limits(limit_key text, launches text)} AS r
 WHERE slot_limit.limit_key = r.limit_key

-- name: count_slots
-- gives: limit_key, held
-- A statement of its own after the lock: it sees what those before us under the lock have committed.
SELECT limit_key, count(*) AS held FROM slot WHERE limit_key IN ({texts:limit_keys}) GROUP BY limit_key

-- name: list_last_successes
-- gives: program_id, started_at, ended_at
-- Retention keeps these runs (retention.sql).
-- Runs of backfills go on beside those of schedules, which do not wait for them. A sandbox has published nothing.
SELECT run.program_id, run.started_at, run.ended_at
  FROM {rows:programs(program_id text)} AS r
  JOIN run ON run.run_id = (SELECT last.run_id FROM run AS last
                             WHERE last.program_id = r.program_id AND last.state = 'COMPLETED' AND last.backfill_id IS NULL
                               AND coalesce(last.exit_reason, '') <> 'sandbox'
                             ORDER BY last.ended_at DESC LIMIT 1)

-- name: list_starts
-- gives: program_id, created_at
-- Retention keeps these runs: start_window has the length of the windows.
SELECT run.program_id, run.created_at
  FROM {rows:windows(program_id text, since bigint)} AS r
  JOIN run ON run.program_id = r.program_id AND run.created_at > r.since AND run.backfill_id IS NULL
 ORDER BY run.created_at DESC
