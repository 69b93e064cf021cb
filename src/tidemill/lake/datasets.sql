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
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE namespace = :namespace AND name = :name AND dropped_at IS NULL

-- name: find_by_id
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset WHERE dataset_id = :dataset_id

-- name: list_all
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE dropped_at IS NULL AND (namespace, name) > (:after_namespace, :after_name)
 ORDER BY namespace, name LIMIT :limit

-- name: list_of_kind
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
-- Cost: with an app also the other data sets of the kind.
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE dropped_at IS NULL AND kind = :kind AND (namespace, name) > (:after_namespace, :after_name)
   AND coalesce(app, '') = coalesce(CAST(:app AS TEXT), app, '')
   AND namespace = coalesce(CAST(:of_namespace AS TEXT), namespace)
 ORDER BY namespace, name LIMIT :limit

-- name: list_of_app
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
-- Cost: the data sets of the namespace.
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE dropped_at IS NULL AND namespace = :of_namespace AND name > :after_name AND app = :app
 ORDER BY namespace, name LIMIT :limit

-- name: find_some
-- gives: dataset_id, namespace, name, kind, location, spec, app, root, generation
SELECT dataset_id, namespace, name, kind, location, spec, app, root, generation FROM dataset
 WHERE dataset_id IN ({texts:dataset_ids})

-- name: drop_dataset
-- locks: dataset
UPDATE dataset SET dropped_at = tidemill_now(), generation = generation + 1 WHERE dataset_id = :dataset_id

-- name: list_writers
-- gives: write_pointer
-- Open transactions that have declared to write the data set.
SELECT write_pointer FROM in_progress WHERE dataset_id = :dataset_id ORDER BY write_pointer
