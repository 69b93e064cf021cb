-- The tables of the core, one text for both databases. Times are epoch milliseconds, JSON, keys and ids are TEXT,
-- flags are 0 or 1. {key} is text that is ordered by its bytes. {clustered} keeps a table in the order of its key on
-- SQLite; {hot} leaves room on each page for updates in place on PostgreSQL, for rows that change often.

CREATE TABLE clock (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    value       BIGINT NOT NULL,
    incarnation TEXT NOT NULL
);

CREATE TABLE tx (
    write_pointer BIGINT PRIMARY KEY,
    state         TEXT NOT NULL CHECK (state IN ('in_progress', 'committed', 'aborted', 'invalid')),
    commit_seq    BIGINT,
    run_id        TEXT NOT NULL,
    epoch         BIGINT NOT NULL,
    began_at      BIGINT NOT NULL,
    ended_at      BIGINT,
    reason        TEXT,
    CHECK ((commit_seq IS NOT NULL) = (state = 'committed')),
    CHECK ((ended_at IS NULL) = (state = 'in_progress'))
);
CREATE UNIQUE INDEX tx_commit_seq ON tx (commit_seq);
CREATE UNIQUE INDEX tx_open ON tx (run_id, epoch) WHERE state = 'in_progress';

-- What open transactions declared to write: the seed's in-progress list, by data set.
CREATE TABLE in_progress (
    dataset_id    TEXT NOT NULL,
    write_pointer BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, write_pointer)
) {clustered};
CREATE INDEX in_progress_tx ON in_progress (write_pointer);

CREATE TABLE message (
    topic      TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    event_type TEXT NOT NULL,
    event_key  TEXT NOT NULL,
    payload    TEXT NOT NULL,
    PRIMARY KEY (topic, seq, n)
) {clustered};

CREATE TABLE subscriber (
    topic TEXT NOT NULL,
    name  TEXT NOT NULL,
    seq   BIGINT NOT NULL,
    n     BIGINT NOT NULL,
    PRIMARY KEY (topic, name)
) {hot};

-- Files to delete: the intent, written before the deed. not_before keeps a file for those who may still read it.
CREATE TABLE garbage (
    location      TEXT PRIMARY KEY,
    dataset_id    TEXT NOT NULL,
    write_pointer BIGINT NOT NULL,
    reason        TEXT NOT NULL,
    not_before    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0,
    error         TEXT
);
CREATE INDEX garbage_due ON garbage (not_before);

CREATE TABLE dataset (
    dataset_id TEXT PRIMARY KEY,
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    app        TEXT,
    kind       TEXT NOT NULL,
    location   TEXT NOT NULL,
    spec       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    dropped_at BIGINT
);
CREATE UNIQUE INDEX dataset_name ON dataset (namespace, name) WHERE dropped_at IS NULL;

-- The column schema of a file set, written by the commit that brings it; change rows carry only its id.
CREATE TABLE dataset_schema (
    dataset_id TEXT NOT NULL,
    schema_id  TEXT NOT NULL,
    schema     TEXT NOT NULL,
    commit_seq BIGINT NOT NULL,
    run_id     TEXT NOT NULL,
    PRIMARY KEY (dataset_id, schema_id)
) {clustered};

-- One row for each change of a partition, written once by its commit; superseded_seq is the only column set later.
CREATE TABLE partition_change (
    dataset_id     TEXT NOT NULL,
    write_pointer  BIGINT NOT NULL,
    partition_key  {key} NOT NULL,
    op             TEXT NOT NULL CHECK (op IN ('create', 'append', 'overwrite', 'drop')),
    commit_seq     BIGINT NOT NULL,
    superseded_seq BIGINT,
    delivers       INTEGER NOT NULL CHECK (delivers IN (0, 1)),
    location       TEXT NOT NULL,
    manifest       {blob} NOT NULL,
    files          BIGINT NOT NULL,
    bytes          BIGINT NOT NULL,
    row_count      BIGINT,
    schema_id      TEXT,
    partition_time BIGINT,
    metadata       TEXT,
    run_id         TEXT NOT NULL,
    at             BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, write_pointer, partition_key)
);
CREATE INDEX partition_current ON partition_change (dataset_id, partition_key) WHERE superseded_seq IS NULL;
CREATE INDEX partition_commit ON partition_change (dataset_id, commit_seq);
CREATE INDEX partition_history ON partition_change (dataset_id, partition_key, commit_seq);
CREATE INDEX partition_superseded ON partition_change (dataset_id, superseded_seq) WHERE superseded_seq IS NOT NULL;
CREATE INDEX partition_unmarked ON partition_change (write_pointer, dataset_id);

CREATE TABLE reader_pin (
    pin_id     TEXT PRIMARY KEY,
    dataset_id TEXT NOT NULL,
    commit_seq BIGINT NOT NULL,
    run_id     TEXT,
    until      BIGINT
);
CREATE INDEX reader_pin_run ON reader_pin (run_id);

CREATE TABLE consumer (
    consumer_id       TEXT PRIMARY KEY,
    dataset_id        TEXT NOT NULL,
    name              TEXT NOT NULL,
    start_version     BIGINT NOT NULL,
    versions_to_check TEXT NOT NULL,
    spec              TEXT NOT NULL,
    revision          BIGINT NOT NULL
) {hot};
CREATE UNIQUE INDEX consumer_name ON consumer (dataset_id, name);

CREATE TABLE consumer_work (
    consumer_id   TEXT NOT NULL,
    write_pointer BIGINT NOT NULL,
    partition_key {key} NOT NULL,
    commit_seq    BIGINT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('new', 'in_progress', 'completed', 'discarded')),
    failures      BIGINT NOT NULL DEFAULT 0,
    not_before    BIGINT NOT NULL DEFAULT 0,
    run_id        TEXT,
    epoch         BIGINT,
    error         TEXT,
    PRIMARY KEY (consumer_id, write_pointer, partition_key),
    CHECK ((state = 'new') = (run_id IS NULL))
) {clustered};
CREATE INDEX consumer_work_new ON consumer_work (consumer_id, not_before, write_pointer) WHERE state = 'new';
CREATE INDEX consumer_work_due ON consumer_work (not_before) WHERE state = 'new' AND not_before > 0;
CREATE INDEX consumer_work_discarded ON consumer_work (consumer_id, write_pointer) WHERE state = 'discarded';
CREATE INDEX consumer_work_run ON consumer_work (run_id) WHERE state = 'in_progress';
-- Two, since SQLite uses no partial index whose condition is an IN (tried, 3.54).
CREATE INDEX consumer_work_key ON consumer_work (partition_key, consumer_id) WHERE state = 'new';
CREATE INDEX consumer_work_held ON consumer_work (consumer_id, partition_key) WHERE state = 'in_progress';

CREATE TABLE inbox_file (
    dataset_id      TEXT NOT NULL,
    name            {key} NOT NULL,
    content_version {key} NOT NULL,
    etag            TEXT NOT NULL,
    bytes           BIGINT NOT NULL,
    modified_at     BIGINT NOT NULL,
    first_seen      BIGINT NOT NULL,
    status          TEXT NOT NULL
        CHECK (status IN ('NEW', 'IN_PROGRESS', 'SUCCESS', 'ERROR', 'QUARANTINED', 'SKIPPED')),
    failures        BIGINT NOT NULL DEFAULT 0,
    not_before      BIGINT NOT NULL DEFAULT 0,
    error           TEXT,
    run_id          TEXT,
    epoch           BIGINT,
    row_count       BIGINT,
    alone           INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
    PRIMARY KEY (dataset_id, name, content_version),
    CHECK (status <> 'IN_PROGRESS' OR run_id IS NOT NULL)
) {clustered};
CREATE INDEX inbox_file_open ON inbox_file (dataset_id, modified_at, name) WHERE status IN ('NEW', 'ERROR');
CREATE INDEX inbox_file_due ON inbox_file (not_before) WHERE status IN ('NEW', 'ERROR') AND not_before > 0;
-- Two versions of one name are never processed at once.
CREATE UNIQUE INDEX inbox_file_claimed ON inbox_file (dataset_id, name) WHERE status = 'IN_PROGRESS';
CREATE INDEX inbox_file_run ON inbox_file (run_id) WHERE status = 'IN_PROGRESS';

CREATE TABLE inbox_marker (
    dataset_id      TEXT PRIMARY KEY,
    marker          TEXT,
    lookback_from   TEXT,
    next_listing_at BIGINT NOT NULL,
    reconciled_at   BIGINT,
    attempts        BIGINT NOT NULL,
    retry_after     BIGINT NOT NULL
) {hot};
CREATE INDEX inbox_marker_due ON inbox_marker (next_listing_at);

CREATE TABLE app (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    spec        TEXT NOT NULL,
    deployed_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE program (
    program_id TEXT PRIMARY KEY,
    namespace  TEXT NOT NULL,
    app        TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    spec       TEXT NOT NULL
);
CREATE UNIQUE INDEX program_name ON program (namespace, app, name);

CREATE TABLE run (
    run_id        TEXT PRIMARY KEY,
    kind          TEXT NOT NULL CHECK (kind IN ('program', 'external')),
    program_id    TEXT,
    schedule_id   TEXT,
    job_id        TEXT,
    state         TEXT NOT NULL CHECK (state IN
        ('PENDING', 'STARTING', 'RUNNING', 'STOPPING', 'COMPLETED', 'FAILED', 'KILLED', 'REJECTED')),
    epoch         BIGINT NOT NULL DEFAULT 0,
    failures      BIGINT NOT NULL DEFAULT 0,
    losses        BIGINT NOT NULL DEFAULT 0,
    priority      BIGINT NOT NULL DEFAULT 0,
    deadline      BIGINT,
    arguments     TEXT NOT NULL,
    triggered_by  TEXT NOT NULL,
    write_pointer BIGINT,
    owner         TEXT,
    host          TEXT,
    pid           BIGINT,
    lease_until   BIGINT,
    kill_asked    INTEGER NOT NULL DEFAULT 0 CHECK (kill_asked IN (0, 1)),
    not_before    BIGINT NOT NULL DEFAULT 0,
    created_at    BIGINT NOT NULL,
    started_at    BIGINT,
    ended_at      BIGINT,
    exit_reason   TEXT,
    log_location  TEXT,
    facts         TEXT,
    CHECK ((ended_at IS NOT NULL) = (state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')))
) {hot};
CREATE UNIQUE INDEX run_job ON run (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX run_pending ON run (priority DESC, not_before, created_at) WHERE state = 'PENDING';
CREATE INDEX run_live ON run (run_id) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');
CREATE INDEX run_program ON run (program_id, created_at DESC);
CREATE INDEX run_schedule ON run (schedule_id, created_at DESC);
CREATE INDEX run_created ON run (created_at DESC, run_id DESC);

-- What each run took: retry, provenance and audit read it. item is a partition key, or the name of an inbox's file.
CREATE TABLE run_input (
    run_id          TEXT NOT NULL,
    dataset_id      TEXT NOT NULL,
    write_pointer   BIGINT NOT NULL,
    item            {key} NOT NULL,
    content_version TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, dataset_id, write_pointer, item, content_version)
) {clustered};

-- slot_limit is only the row to lock; what is held is the count of slot rows under it.
CREATE TABLE slot_limit (
    limit_key TEXT PRIMARY KEY
) {hot};
CREATE TABLE slot (
    limit_key TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    taken_at  BIGINT NOT NULL,
    PRIMARY KEY (limit_key, run_id)
) {clustered};
CREATE INDEX slot_run ON slot (run_id);

CREATE TABLE schedule (
    schedule_id TEXT PRIMARY KEY,
    namespace   TEXT NOT NULL,
    app         TEXT NOT NULL,
    name        TEXT NOT NULL,
    generation  BIGINT NOT NULL,
    since_seq   BIGINT NOT NULL,
    since_at    BIGINT NOT NULL,
    program_id  TEXT NOT NULL,
    spec        TEXT NOT NULL,
    priority    BIGINT NOT NULL DEFAULT 0,
    owner       TEXT NOT NULL CHECK (owner IN ('app', 'ops')),
    status      TEXT NOT NULL CHECK (status IN ('SUSPENDED', 'SCHEDULED'))
);
CREATE UNIQUE INDEX schedule_name ON schedule (namespace, app, name);
CREATE INDEX schedule_program ON schedule (program_id);

-- The reverse index of the schedule store (seed 001): a message costs look-ups by its event key.
CREATE TABLE trigger_key (
    event_key   TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    trigger_no  BIGINT NOT NULL,
    PRIMARY KEY (event_key, schedule_id, trigger_no)
) {clustered};
CREATE INDEX trigger_key_schedule ON trigger_key (schedule_id);

CREATE TABLE timer (
    schedule_id  TEXT NOT NULL,
    trigger_no   BIGINT NOT NULL,
    next_fire_at BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, trigger_no)
) {hot};
CREATE INDEX timer_due ON timer (next_fire_at);

CREATE TABLE fire (
    schedule_id TEXT NOT NULL,
    generation  BIGINT NOT NULL,
    trigger_no  BIGINT NOT NULL,
    fire_time   BIGINT NOT NULL,
    state       TEXT NOT NULL,
    job_id      TEXT,
    PRIMARY KEY (schedule_id, generation, trigger_no, fire_time)
) {clustered};

CREATE TABLE job (
    job_id        TEXT PRIMARY KEY,
    schedule_id   TEXT NOT NULL,
    generation    BIGINT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('PENDING_TRIGGER', 'PENDING_CONSTRAINT', 'PENDING_LAUNCH')),
    created_at    BIGINT NOT NULL,
    satisfied_at  BIGINT,
    next_check_at BIGINT,
    priority      BIGINT NOT NULL DEFAULT 0,
    deadline      BIGINT,
    progress      TEXT,
    verdict       TEXT,
    revision      BIGINT NOT NULL DEFAULT 0
) {hot};
CREATE UNIQUE INDEX job_open ON job (schedule_id) WHERE state <> 'PENDING_LAUNCH';
CREATE INDEX job_due ON job (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX job_schedule ON job (schedule_id);

CREATE TABLE job_message (
    job_id     TEXT NOT NULL,
    topic      TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    trigger_no BIGINT NOT NULL,
    PRIMARY KEY (job_id, topic, seq, n, trigger_no)
) {clustered};

-- Who to look at again when something changes: slots:<limit key>, run:<program>.
CREATE TABLE job_waits (
    wait_key TEXT NOT NULL,
    job_id   TEXT NOT NULL,
    PRIMARY KEY (wait_key, job_id)
) {clustered};
CREATE INDEX job_waits_job ON job_waits (job_id);

CREATE TABLE job_history (
    job_id      TEXT PRIMARY KEY,
    schedule_id TEXT NOT NULL,
    generation  BIGINT NOT NULL,
    outcome     TEXT NOT NULL,
    run_id      TEXT,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL,
    detail      TEXT
);
CREATE INDEX job_history_schedule ON job_history (schedule_id, ended_at DESC);
