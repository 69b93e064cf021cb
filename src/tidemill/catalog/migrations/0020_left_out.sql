-- Rows of late partitions that count in no window, since a window program drops what is late: by program and partition,
-- so that nothing is left out in silence. slot_time is the partition's time.
CREATE TABLE left_out (
    program_id    TEXT NOT NULL,
    partition_key {key} NOT NULL,
    slot_time     BIGINT NOT NULL,
    late_rows     BIGINT NOT NULL,
    counted_at    BIGINT NOT NULL,
    PRIMARY KEY (program_id, partition_key)
) {clustered};
