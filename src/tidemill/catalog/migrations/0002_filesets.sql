-- Time travel and its end. Snapshots below `horizon` cannot be read any more. A change that has expired has no files,
-- or soon none; the row stays as history. Garbage with a partition key is the files of one change, not a directory.

ALTER TABLE dataset ADD COLUMN horizon BIGINT NOT NULL DEFAULT 0;
ALTER TABLE partition_change ADD COLUMN expired_at BIGINT;
ALTER TABLE garbage ADD COLUMN partition_key {key};

CREATE INDEX partition_location ON partition_change (dataset_id, location, partition_key);
CREATE INDEX partition_dropped ON partition_change (dataset_id, commit_seq) WHERE op = 'drop';
CREATE INDEX reader_pin_dataset ON reader_pin (dataset_id, commit_seq);
CREATE INDEX tx_ended ON tx (ended_at) WHERE commit_seq IS NOT NULL;
