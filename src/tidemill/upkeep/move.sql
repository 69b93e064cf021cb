-- name: move_bundles
UPDATE bundle SET location = CAST(:new AS TEXT) || substr(location, length(CAST(:old AS TEXT)) + 1)
 WHERE substr(location, 1, length(CAST(:old AS TEXT))) = :old

-- name: move_uploads
UPDATE bundle_upload SET location = CAST(:new AS TEXT) || substr(location, length(CAST(:old AS TEXT)) + 1)
 WHERE substr(location, 1, length(CAST(:old AS TEXT))) = :old

-- name: move_archives
-- Where the inboxes put processed files from now on.
UPDATE inbox_marker SET archive = CAST(:new AS TEXT) || substr(archive, length(CAST(:old AS TEXT)) + 1)
 WHERE substr(archive, 1, length(CAST(:old AS TEXT))) = :old

-- name: move_archived
-- locks: inbox_file
-- Where processed files lie, also those of long ago.
UPDATE inbox_file SET archive = CAST(:new AS TEXT) || substr(archive, length(CAST(:old AS TEXT)) + 1)
 WHERE substr(archive, 1, length(CAST(:old AS TEXT))) = :old

-- name: move_logs
-- locks: run
UPDATE run SET log_location = CAST(:new AS TEXT) || substr(log_location, length(CAST(:old AS TEXT)) + 1)
 WHERE substr(log_location, 1, length(CAST(:old AS TEXT))) = :old

-- name: list_programs
-- gives: program_id, spec
SELECT program_id, spec FROM program

-- name: move_program
UPDATE program SET spec = :spec WHERE program_id = :program_id

-- name: list_apps
-- gives: namespace, name, spec
-- Deleted ones too: their data sets move.
SELECT namespace, name, spec FROM app

-- name: move_app
UPDATE app SET spec = :spec WHERE namespace = :namespace AND name = :name
