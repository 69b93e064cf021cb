-- name: put_app
INSERT INTO app (namespace, name, version, spec, deployed_at)
VALUES (:namespace, :name, 1, :spec, tidemill_now())
    ON CONFLICT (namespace, name) DO UPDATE
   SET version = app.version + 1, spec = excluded.spec, deployed_at = excluded.deployed_at, deleted = 0

-- name: delete_app
-- The row stays: the data sets of the app belong to its project.
UPDATE app SET deleted = 1 WHERE namespace = :namespace AND name = :name

-- name: list_apps
-- gives: namespace, name, spec
-- Apps are few.
SELECT namespace, name, spec FROM app WHERE deleted = 0 ORDER BY namespace, name

-- name: find_app
-- gives: spec
-- Deleted or not.
SELECT spec FROM app WHERE namespace = :namespace AND name = :name
