-- Watermarks of file sets, and the windows that programs compute by them. Instants (of W, of slots, of windows' ends) are
-- microseconds since 1970 in UTC; slot_time, window_start and window_end are wall-clock times, in microseconds as well.

-- The times that an open transaction has declared to write, as instants [from_time, to_time): they hold W back.
ALTER TABLE in_progress ADD COLUMN from_time BIGINT;
ALTER TABLE in_progress ADD COLUMN to_time BIGINT;

-- value is W; target is where it stands once no open transaction holds it back; next_time is the slot for which an
-- unbroken run of slots waits; next_check_at is when a complete slot ahead of the clock comes due.
CREATE TABLE watermark (
    dataset_id    TEXT PRIMARY KEY,
    declared      TEXT NOT NULL,
    gap           TEXT NOT NULL CHECK (gap IN ('skip', 'wait')),
    row_lag       BIGINT NOT NULL,
    max_ahead     BIGINT NOT NULL,
    value         BIGINT,
    target        BIGINT,
    next_time     BIGINT,
    next_check_at BIGINT
) {hot};

-- Every move of W, so that a snapshot knows where it stood. cause is a run, the keeper, or who asked for it.
CREATE TABLE watermark_move (
    dataset_id TEXT NOT NULL,
    commit_seq BIGINT NOT NULL,
    value      BIGINT NOT NULL,
    previous   BIGINT,
    cause      TEXT NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, commit_seq),
    CHECK (previous IS NULL OR value > previous)
) {clustered};

CREATE TABLE time_slot (
    dataset_id TEXT NOT NULL,
    slot_time  BIGINT NOT NULL,
    begins_at  BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL,
    next_time  BIGINT NOT NULL,
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1)),
    PRIMARY KEY (dataset_id, slot_time)
) {clustered};
CREATE INDEX time_slot_complete ON time_slot (dataset_id, ends_at) WHERE complete = 1;
CREATE INDEX time_slot_open ON time_slot (dataset_id, slot_time) WHERE complete = 0;

-- What has come of the partitions that a slot waits for; only where it waits for several.
CREATE TABLE slot_member (
    dataset_id TEXT NOT NULL,
    slot_time  BIGINT NOT NULL,
    member     {key} NOT NULL,
    PRIMARY KEY (dataset_id, slot_time, member)
) {clustered};

CREATE INDEX partition_by_time ON partition_change (dataset_id, partition_time)
    WHERE superseded_seq IS NULL AND partition_time IS NOT NULL;

-- computed: results are published up to here; seen: all changes with a commit sequence below it are in them.
CREATE TABLE window_program (
    program_id TEXT PRIMARY KEY,
    dataset_id TEXT NOT NULL,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    late       TEXT NOT NULL,
    computed   BIGINT,
    seen       BIGINT NOT NULL,
    revision   BIGINT NOT NULL
) {hot};
CREATE INDEX window_program_dataset ON window_program (dataset_id);

-- Which transaction wrote the newest version of a window's rows. stale: the program was reset since.
CREATE TABLE window_result (
    program_id    TEXT NOT NULL,
    window_end    BIGINT NOT NULL,
    window_start  BIGINT NOT NULL,
    write_pointer BIGINT NOT NULL,
    stale         INTEGER NOT NULL DEFAULT 0 CHECK (stale IN (0, 1)),
    PRIMARY KEY (program_id, window_end, window_start)
) {clustered};
CREATE INDEX window_result_stale ON window_result (program_id, window_end) WHERE stale = 1;
