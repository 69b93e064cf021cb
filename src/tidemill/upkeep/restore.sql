-- name: has_content
-- gives: found
SELECT 1 AS found WHERE (SELECT min(write_pointer) FROM tx) IS NOT NULL
            OR EXISTS (SELECT 1 FROM dataset) OR EXISTS (SELECT 1 FROM app)

-- name: read_clock
-- gives: value
-- only: sqlite
SELECT value FROM clock WHERE id = 1

-- name: read_clock
-- only: postgres
SELECT last_value AS value FROM tidemill_clock

-- name: find_greatest_tick
-- gives: tick
-- A backup's clock was read before its rows.
SELECT coalesce(max(greatest.tick), 0) AS tick
  FROM (SELECT max(write_pointer) AS tick FROM tx
         UNION ALL SELECT max(commit_seq) FROM tx
         UNION ALL SELECT max(seq) FROM message
         UNION ALL SELECT max(tick) FROM retention) AS greatest

-- name: set_clock
-- locks: clock
-- only: sqlite
UPDATE clock SET value = :clock WHERE id = 1

-- name: set_clock
-- only: postgres
SELECT setval('tidemill_clock', :clock)

-- name: begin_life
-- locks: clock
UPDATE clock SET incarnation = :incarnation WHERE id = 1

-- name: name_garbage
-- What the janitor still had to delete lies in directories of the life that ends.
UPDATE garbage SET location = location || '-' || :incarnation, not_before = 0
 WHERE location NOT LIKE '%/tx-%-%'

-- name: end_open
-- locks: tx
-- They may have committed after the backup: their directories are no garbage, so their declarations leave none.
UPDATE tx SET state = 'invalid', reason = :reason, ended_at = tidemill_now() WHERE state = 'in_progress'

-- name: forget_declarations
DELETE FROM in_progress
