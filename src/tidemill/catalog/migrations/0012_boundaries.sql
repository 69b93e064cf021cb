-- Ends of periods that a watermark has passed and that wait for runs of their own: from the next up to the last one, in
-- milliseconds. `behind` is the job whose end the next one waits for.
CREATE TABLE boundary (
    schedule_id TEXT NOT NULL,
    trigger_no  BIGINT NOT NULL,
    next_at     BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    behind      TEXT,
    PRIMARY KEY (schedule_id, trigger_no)
) {hot};
