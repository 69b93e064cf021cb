-- name: put_bundle
-- A bundle that is being deleted is written again: its file, if it has one, has another name then.
INSERT INTO bundle (digest, files, bytes, content, location, packed_at)
VALUES (:digest, :files, :bytes, :content, :location, tidemill_now())
ON CONFLICT (digest) DO UPDATE
   SET content = excluded.content, location = excluded.location, leaving = 0, packed_at = excluded.packed_at
 WHERE bundle.leaving = 1

-- name: find_bundle
-- gives: content, location
SELECT content, location FROM bundle WHERE digest = :digest

-- name: find_kept
-- gives: found
SELECT 1 AS found FROM bundle WHERE digest = :digest AND leaving = 0

-- name: find_files
-- gives: files
SELECT files FROM bundle WHERE digest = :digest

-- name: list_digests
-- gives: digest
SELECT digest FROM bundle

-- name: mark_leaving
-- A retired program still needs its bundle while a run of it has not ended, and so holds a slot.
-- Bundles are few: those of the kept deployments of each app, and those of attempts that have not ended.
UPDATE bundle SET leaving = 1
 WHERE leaving = 0
   AND NOT EXISTS (SELECT 1 FROM program
                    WHERE program.bundle = bundle.digest
                      AND (program.retired = 0
                           OR EXISTS (SELECT 1 FROM slot WHERE slot.limit_key = 'program:' || program.program_id)))
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.state IN ('STARTING', 'RUNNING', 'STOPPING')
                      AND run.bundle = bundle.digest)
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.code = bundle.digest AND run.ended_at IS NULL)
   AND NOT EXISTS (SELECT 1 FROM deployment WHERE deployment.bundle = bundle.digest AND deployment.keeps = 1)

-- name: list_leaving
-- gives: digest, location
SELECT digest, location FROM bundle WHERE leaving = 1

-- name: delete_bundle
-- Only while it is the one that was looked at: a deployment may have brought it back, with another file.
DELETE FROM bundle WHERE digest = :digest AND leaving = 1 AND coalesce(location, '') = :location

-- name: find_unnamed
-- gives: found
-- A look locks out no writer; `mark_leaving` decides.
SELECT 1 AS found FROM bundle
 WHERE leaving = 0
   AND NOT EXISTS (SELECT 1 FROM program
                    WHERE program.bundle = bundle.digest
                      AND (program.retired = 0
                           OR EXISTS (SELECT 1 FROM slot WHERE slot.limit_key = 'program:' || program.program_id)))
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.state IN ('STARTING', 'RUNNING', 'STOPPING')
                      AND run.bundle = bundle.digest)
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.code = bundle.digest AND run.ended_at IS NULL)
   AND NOT EXISTS (SELECT 1 FROM deployment WHERE deployment.bundle = bundle.digest AND deployment.keeps = 1)
 LIMIT 1

-- name: replace_file
UPDATE bundle SET location = :new WHERE digest = :digest AND location = :old

-- name: begin_upload
INSERT INTO bundle_upload (location, begun_at) VALUES (:location, tidemill_now())

-- name: end_upload
-- Only when a bundle names the file now. A janitor that abandons the upload at this moment locks the row before or after.
DELETE FROM bundle_upload
 WHERE location = :location AND abandoned = 0
   AND EXISTS (SELECT 1 FROM bundle WHERE bundle.location = :location AND bundle.leaving = 0)

-- name: find_abandoned
-- gives: found
SELECT 1 AS found FROM bundle_upload WHERE location = :location AND abandoned = 1

-- name: forget_upload
DELETE FROM bundle_upload WHERE location = :location

-- name: find_late_uploads
-- gives: found
-- Uploads are few: one for each deployment of a large bundle that has not ended.
SELECT 1 AS found FROM bundle_upload WHERE begun_at <= tidemill_now() - :within LIMIT 1

-- name: abandon_uploads
-- From here on no deployment names the files.
UPDATE bundle_upload SET abandoned = 1 WHERE abandoned = 0 AND begun_at <= tidemill_now() - :within

-- name: list_abandoned
-- gives: location
SELECT location FROM bundle_upload WHERE abandoned = 1

-- name: forget_abandoned
DELETE FROM bundle_upload WHERE abandoned = 1 AND begun_at <= tidemill_now() - :known
