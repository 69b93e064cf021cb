-- name: put_app
INSERT INTO app (namespace, name, version, spec, deployed_at)
VALUES (:namespace, :name, :version, :spec, tidemill_now())
    ON CONFLICT (namespace, name) DO UPDATE
   SET version = excluded.version, spec = excluded.spec, deployed_at = excluded.deployed_at, deleted = 0

-- name: number_programs
-- The programs that a deployment has registered have its number: runs record it.
UPDATE program SET app_version = :version WHERE namespace = :namespace AND app = :app AND retired = 0

-- name: delete_app
-- The row stays: the data sets of the app belong to its project.
UPDATE app SET deleted = 1 WHERE namespace = :namespace AND name = :name

-- name: list_apps
-- gives: namespace, name, spec
-- Apps are few.
SELECT namespace, name, spec FROM app WHERE deleted = 0 ORDER BY namespace, name

-- name: find_app
-- gives: version, spec, deleted
-- Deleted or not.
SELECT version, spec, deleted FROM app WHERE namespace = :namespace AND name = :name
