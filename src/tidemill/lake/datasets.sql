-- name: insert_dataset
INSERT INTO dataset (dataset_id, namespace, name, app, kind, location, spec, created_at)
VALUES (:dataset_id, :namespace, :name, :app, :kind, :location, :spec, tidemill_now())

-- name: update_dataset
UPDATE dataset SET app = :app, location = :location, spec = :spec WHERE dataset_id = :dataset_id

-- name: find_by_name
SELECT dataset_id, namespace, name, kind, location, spec, app FROM dataset
 WHERE namespace = :namespace AND name = :name AND dropped_at IS NULL

-- name: find_by_id
SELECT dataset_id, namespace, name, kind, location, spec, app FROM dataset WHERE dataset_id = :dataset_id

-- name: list_all
SELECT dataset_id, namespace, name, kind, location, spec, app FROM dataset
 WHERE dropped_at IS NULL ORDER BY namespace, name
