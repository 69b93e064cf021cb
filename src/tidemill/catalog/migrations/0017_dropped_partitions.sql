-- How many partitions were dropped before a run of the consumer processed them: they are not delivered.
ALTER TABLE consumer ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0;
