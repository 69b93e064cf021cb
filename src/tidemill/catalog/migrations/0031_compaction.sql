-- Compactions: the rows of a partition in fewer files. Changes stay as they were, for consumers and for time travel; a
-- change whose rows a compaction holds has compacted_seq, the commit of the first such compaction. superseded_seq is the
-- commit of the next compaction of the partition, or of what replaced or dropped the partition.
ALTER TABLE partition_change ADD COLUMN compacted_seq BIGINT;

CREATE TABLE compaction (
    dataset_id     TEXT NOT NULL,
    write_pointer  BIGINT NOT NULL,
    partition_key  {key} NOT NULL,
    commit_seq     BIGINT NOT NULL,
    superseded_seq BIGINT,
    location       TEXT NOT NULL,
    manifest       {blob} NOT NULL,
    files          BIGINT NOT NULL,
    bytes          BIGINT NOT NULL,
    row_count      BIGINT NOT NULL,
    run_id         TEXT NOT NULL,
    at             BIGINT NOT NULL,
    expired_at     BIGINT,
    PRIMARY KEY (dataset_id, write_pointer, partition_key),
    CHECK (expired_at IS NULL OR superseded_seq IS NOT NULL)
);
CREATE UNIQUE INDEX compaction_current ON compaction (dataset_id, partition_key) WHERE superseded_seq IS NULL;
CREATE INDEX compaction_superseded ON compaction (dataset_id, superseded_seq) WHERE superseded_seq IS NOT NULL;
CREATE INDEX compaction_location ON compaction (dataset_id, location);
CREATE INDEX compaction_tx ON compaction (write_pointer);
