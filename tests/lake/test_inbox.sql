-- name: let_retries_come_due
UPDATE inbox_file SET not_before = 1 WHERE not_before > 0

-- name: select_inputs
SELECT dataset_id, item, content_version FROM run_input ORDER BY item
