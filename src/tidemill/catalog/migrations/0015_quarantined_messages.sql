-- Messages that a subscriber could not read: its position has passed them, and a person can look at the reason.
CREATE TABLE quarantined_message (
    topic  TEXT NOT NULL,
    seq    BIGINT NOT NULL,
    n      BIGINT NOT NULL,
    name   TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (topic, seq, n, name)
);
