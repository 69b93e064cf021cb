-- Code by its content: the app file and what it imports from its project, as a zip. Above a size it lies at `location`.
-- `files` is JSON, the hash of each file by its name. `leaving` is the intent to delete: nothing names the bundle.
CREATE TABLE bundle (
    digest    TEXT PRIMARY KEY,
    files     TEXT NOT NULL,
    bytes     BIGINT NOT NULL,
    content   {blob},
    location  TEXT,
    leaving   INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1)),
    packed_at BIGINT NOT NULL,
    CHECK ((content IS NULL) <> (location IS NULL))
);

-- Empty for what was deployed before there were bundles, until its next deployment. Of a run: the code of its attempt.
ALTER TABLE program ADD COLUMN bundle TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN bundle TEXT NOT NULL DEFAULT '';
CREATE INDEX program_bundle ON program (bundle);
CREATE INDEX run_bundle ON run (bundle) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');
