-- name: read_garbage
SELECT dataset_id, write_pointer, reason FROM garbage ORDER BY dataset_id
