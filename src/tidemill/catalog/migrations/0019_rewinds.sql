-- A watermark moves back when its times are read in another way, and by hand. rewinds = 1 marks such a move; value is
-- NULL when no partition has a time any more. All other moves go forward. (A CHECK cannot be changed: the table is made
-- again.)
CREATE TABLE watermark_moved (
    dataset_id TEXT NOT NULL,
    commit_seq BIGINT NOT NULL,
    value      BIGINT,
    previous   BIGINT,
    cause      TEXT NOT NULL,
    at         BIGINT NOT NULL,
    rewinds    INTEGER NOT NULL DEFAULT 0 CHECK (rewinds IN (0, 1)),
    PRIMARY KEY (dataset_id, commit_seq),
    CHECK (rewinds = 1 OR (value IS NOT NULL AND (previous IS NULL OR value > previous))),
    CHECK (rewinds = 0 OR (previous IS NOT NULL AND (value IS NULL OR value < previous)))
) {clustered};
INSERT INTO watermark_moved (dataset_id, commit_seq, value, previous, cause, at)
SELECT dataset_id, commit_seq, value, previous, cause, at FROM watermark_move;
DROP TABLE watermark_move;
ALTER TABLE watermark_moved RENAME TO watermark_move;
