-- name: put_app
INSERT INTO app (namespace, name, version, spec, deployed_at)
VALUES (:namespace, :name, 1, :spec, tidemill_now())
    ON CONFLICT (namespace, name) DO UPDATE
   SET version = app.version + 1, spec = excluded.spec, deployed_at = excluded.deployed_at

-- name: delete_app
DELETE FROM app WHERE namespace = :namespace AND name = :name

-- name: find_app
SELECT spec FROM app WHERE namespace = :namespace AND name = :name
