-- Which changes concern a consumer: those that committed at this tick or later.
ALTER TABLE consumer ADD COLUMN since_seq BIGINT NOT NULL DEFAULT 0;

-- Consumers as they were until somebody reset them, with who, when and to where. Their runs' claims keep their old id.
CREATE TABLE consumer_reset (
    consumer_id       TEXT PRIMARY KEY,
    dataset_id        TEXT NOT NULL,
    name              TEXT NOT NULL,
    since_seq         BIGINT NOT NULL,
    start_version     BIGINT NOT NULL,
    versions_to_check TEXT NOT NULL,
    to_seq            BIGINT NOT NULL,
    asked             TEXT NOT NULL,
    by_whom           TEXT NOT NULL,
    at                BIGINT NOT NULL,
    reset_seq         BIGINT NOT NULL
);
CREATE INDEX consumer_reset_name ON consumer_reset (dataset_id, name, reset_seq);

-- Worker programs, of which so many runs are kept alive; after a failure not before a time.
CREATE TABLE worker (
    program_id TEXT PRIMARY KEY,
    instances  BIGINT NOT NULL CHECK (instances >= 0),
    failures   BIGINT NOT NULL DEFAULT 0,
    not_before BIGINT NOT NULL DEFAULT 0
) {hot};
