-- name: put_deployment
INSERT INTO deployment (namespace, app, version, bundle, file, actor, deployed_at, changes, rolled_back_to,
                        declaration)
VALUES (:namespace, :app, :version, :bundle, :file, :actor, tidemill_now(), :changes, :rolled_back_to, :declaration)

-- name: forget_code
-- The code of these deployments is kept no longer. Cost: the deployments of all apps whose code is kept.
UPDATE deployment {indexed_by:deployment_keeps} SET keeps = 0, declaration = NULL
 WHERE namespace = :namespace AND app = :app AND version <= :version AND keeps = 1

-- name: find_deployment
-- gives: version, deployed_at, actor, code, kept, changes, rolled_back_to, file
SELECT version, deployed_at, actor, bundle AS code,
       keeps = 1 AND EXISTS (SELECT 1 FROM bundle WHERE bundle.digest = deployment.bundle AND bundle.leaving = 0) AS kept,
       changes, rolled_back_to, file
  FROM deployment WHERE namespace = :namespace AND app = :app AND version = :version

-- name: find_declaration
-- gives: declaration
SELECT declaration FROM deployment WHERE namespace = :namespace AND app = :app AND version = :version

-- name: find_previous
-- gives: version
-- The newest earlier deployment with other code. Cost: the deployments since then.
SELECT version FROM deployment
 WHERE namespace = :namespace AND app = :app AND version < :version AND bundle <> :bundle
 ORDER BY version DESC LIMIT 1

-- name: list_deployments
-- gives: version, deployed_at, actor, code, kept, changes, rolled_back_to, file
SELECT version, deployed_at, actor, bundle AS code,
       keeps = 1 AND EXISTS (SELECT 1 FROM bundle WHERE bundle.digest = deployment.bundle AND bundle.leaving = 0) AS kept,
       changes, rolled_back_to, file
  FROM deployment WHERE namespace = :namespace AND app = :app AND version < :before
 ORDER BY version DESC LIMIT :limit
