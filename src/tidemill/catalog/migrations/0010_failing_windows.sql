-- Windows that could not be computed, while others could: set aside with what was said of it, and tried again.
CREATE TABLE window_failure (
    program_id   TEXT NOT NULL,
    window_end   BIGINT NOT NULL,
    window_start BIGINT NOT NULL,
    reason       TEXT NOT NULL,
    partitions   TEXT NOT NULL,
    since        BIGINT NOT NULL,
    tried_at     BIGINT NOT NULL,
    PRIMARY KEY (program_id, window_end, window_start)
) {clustered};

-- When a window program is to be told that it has work left, and since when its runs have not come to an end.
ALTER TABLE window_program ADD COLUMN retry_at BIGINT;
ALTER TABLE window_program ADD COLUMN failing_since BIGINT;
CREATE INDEX window_program_retry ON window_program (retry_at) WHERE retry_at IS NOT NULL;
