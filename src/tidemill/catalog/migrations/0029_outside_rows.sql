-- Beside late rows those that lie outside the time of their partition, where these are dropped: as many as the partition
-- held when the window program read it last.
ALTER TABLE left_out ADD COLUMN outside_rows BIGINT NOT NULL DEFAULT 0;
