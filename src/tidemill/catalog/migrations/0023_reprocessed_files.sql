-- Who has processed a file before a person had it delivered again: the closed record, with who asked and when.
CREATE TABLE inbox_reprocessed (
    dataset_id      TEXT NOT NULL,
    name            {key} NOT NULL,
    run_id          {key} NOT NULL,
    content_version {key} NOT NULL,
    row_count       BIGINT,
    by_whom         TEXT NOT NULL,
    at              BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, name, run_id)
) {clustered};
