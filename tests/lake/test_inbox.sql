-- name: let_retries_come_due
-- locks: inbox_file
UPDATE inbox_file SET not_before = 1 WHERE not_before > 0

-- name: select_waits
SELECT (not_before - tidemill_now() + 500) / 1000 FROM inbox_file

-- name: renew_skipped
-- locks: inbox_file
UPDATE inbox_file SET status = 'NEW' WHERE status = 'SKIPPED'

-- name: select_inputs
SELECT dataset_id, item, content_version FROM run_input ORDER BY item

-- name: as_an_earlier_version_left_it
-- locks: inbox_file
UPDATE inbox_file SET content_version = :old, checksum = NULL WHERE name = :name

-- name: list_absent
SELECT name FROM inbox_file WHERE absent_since IS NOT NULL

-- name: let_absence_age
-- locks: inbox_file
UPDATE inbox_file SET absent_since = absent_since - 7200000 WHERE absent_since IS NOT NULL
