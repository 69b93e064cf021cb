-- Which folder of the disk an inbox is, as device and inode, while files are in it: an empty folder of another identity
-- is a mount point without its disk. NULL while the folder is empty.
ALTER TABLE dataset ADD COLUMN root TEXT;

-- Why the last attempt that has ended without a commit did so: a `Cause`. NULL before the first.
ALTER TABLE run ADD COLUMN exit_cause TEXT;

-- A deleted app is still known: its data sets belong to the project that deployed them.
ALTER TABLE app ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1));

-- The intent to write the file of a large bundle; the deployment that names the file deletes the row. An abandoned
-- upload belongs to no deployment any more: its file is deleted.
CREATE TABLE bundle_upload (
    location  TEXT PRIMARY KEY,
    begun_at  BIGINT NOT NULL,
    abandoned INTEGER NOT NULL DEFAULT 0 CHECK (abandoned IN (0, 1))
);
