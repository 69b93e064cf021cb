-- name: insert_dataset
INSERT INTO dataset (dataset_id, namespace, name, app, kind, location, spec, created_at)
VALUES (:dataset_id, :namespace, :name, :app, :kind, :location, :spec, tidemill_now())

-- name: update_dataset
-- locks: dataset
-- At another location another folder is the right one.
UPDATE dataset
   SET app = :app, location = :location, spec = :spec, generation = generation + 1,
       root = CASE WHEN location = :location THEN root END
 WHERE dataset_id = :dataset_id

-- name: find_by_name
-- gives: dataset_id, namespace, name, kind, location, spec, app, root
SELECT dataset_id, namespace, name, kind, location, spec, app, root FROM dataset
 WHERE namespace = :namespace AND name = :name AND dropped_at IS NULL

-- name: find_by_id
-- gives: dataset_id, namespace, name, kind, location, spec, app, root
SELECT dataset_id, namespace, name, kind, location, spec, app, root FROM dataset WHERE dataset_id = :dataset_id

-- name: list_all
-- gives: dataset_id, namespace, name, kind, location, spec, app, root
SELECT dataset_id, namespace, name, kind, location, spec, app, root FROM dataset
 WHERE dropped_at IS NULL AND (namespace, name) > (:after_namespace, :after_name)
 ORDER BY namespace, name LIMIT :limit

-- name: find_some
-- gives: dataset_id, namespace, name, kind, location, spec, app, root
SELECT dataset_id, namespace, name, kind, location, spec, app, root FROM dataset
 WHERE dataset_id IN ({texts:dataset_ids})
