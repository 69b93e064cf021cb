-- After how many failures of a partition, alone, the consumer discards the partition: `Reads(attempts=...)`.
ALTER TABLE consumer ADD COLUMN attempts BIGINT NOT NULL DEFAULT 3;
