-- The tables of the catalog, one text for both databases. Times are epoch milliseconds; JSON, keys and ids are {text};
-- flags are 0 or 1. {text} is ordered by its bytes, whatever the language of the database: pages of lists begin and end
-- at a name. {clustered} keeps a table in the order of its key on SQLite. {hot} leaves room on each page for updates in
-- place on PostgreSQL, for rows that change often.

-- Transactions and messages.

CREATE TABLE clock (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    value       BIGINT NOT NULL,
    incarnation {text} NOT NULL
);

CREATE TABLE tx (
    write_pointer BIGINT PRIMARY KEY,
    state         {text} NOT NULL CHECK (state IN ('in_progress', 'committed', 'aborted', 'invalid')),
    commit_seq    BIGINT,
    run_id        {text} NOT NULL,
    epoch         BIGINT NOT NULL,
    began_at      BIGINT NOT NULL,
    ended_at      BIGINT,
    reason        {text},
    CHECK ((commit_seq IS NOT NULL) = (state = 'committed')),
    CHECK ((ended_at IS NULL) = (state = 'in_progress'))
);
CREATE UNIQUE INDEX tx_commit_seq ON tx (commit_seq);
CREATE UNIQUE INDEX tx_open ON tx (run_id, epoch) WHERE state = 'in_progress';
CREATE INDEX tx_run ON tx (run_id, write_pointer);
CREATE INDEX tx_failed ON tx (state, write_pointer) WHERE state IN ('aborted', 'invalid');
CREATE INDEX tx_ended ON tx (ended_at, commit_seq) WHERE commit_seq IS NOT NULL;

-- The horizon of history, one row. Audits compare nothing that committed at or before seq, and no backfill that ended
-- before at. Of that, what committed at or before delete_seq, and ended before delete_at, is deleted. tick is a tick of
-- the clock at the last move, above the pointers of all that is deleted.
CREATE TABLE retention (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    seq        BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    moved_at   BIGINT NOT NULL,
    tick       BIGINT NOT NULL,
    delete_seq BIGINT NOT NULL,
    delete_at  BIGINT NOT NULL,
    -- The numbers of rows that were deleted so far, by kind, as JSON.
    deleted    {text} NOT NULL DEFAULT '{}',
    CHECK (delete_seq <= seq)
);

-- What open transactions declared to write: the seed's in-progress list, by data set.
CREATE TABLE in_progress (
    dataset_id    {text} NOT NULL,
    write_pointer BIGINT NOT NULL,
    -- The times that the transaction has declared to write, as instants [from_time, to_time): they hold the watermark
    -- back.
    from_time     BIGINT,
    to_time       BIGINT,
    -- Refreshes of a snapshot are ordered by (order_time, write_pointer); the greatest is current. logical_time is
    -- the time of the schedule for which a refresh runs. Begin fixes order_time: see refresh_order.sql. NULL is below
    -- all times.
    logical_time  BIGINT,
    order_time    BIGINT,
    PRIMARY KEY (dataset_id, write_pointer)
) {clustered};
CREATE INDEX in_progress_tx ON in_progress (write_pointer);

CREATE TABLE message (
    topic      {text} NOT NULL,
    seq        BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    event_type {text} NOT NULL,
    event_key  {text} NOT NULL,
    payload    {text} NOT NULL,
    PRIMARY KEY (topic, seq, n)
) {clustered};
-- The arrivals of a data set by time.
CREATE INDEX message_data ON message (event_key, at) WHERE topic = 'data';

-- Topics that a person has created, and topics of which messages have expired. created_at is NULL for a topic that its
-- first message made. Messages stay for time_to_live (milliseconds); NULL: as long as the project says. All messages up
-- to (expired_seq, expired_n) are deleted.
CREATE TABLE topic (
    topic        {text} PRIMARY KEY,
    created_at   BIGINT,
    time_to_live BIGINT,
    expired_seq  BIGINT NOT NULL DEFAULT 0,
    expired_n    BIGINT NOT NULL DEFAULT -1
);

-- Deliveries of hooks that came of late: the same delivery counts once.
CREATE TABLE hook_delivery (
    hook     {text} NOT NULL,
    delivery {text} NOT NULL,
    seq      BIGINT NOT NULL,
    n        BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (hook, delivery)
) {clustered};
CREATE INDEX hook_delivery_at ON hook_delivery (at);

CREATE TABLE subscriber (
    topic {text} NOT NULL,
    name  {text} NOT NULL,
    seq   BIGINT NOT NULL,
    n     BIGINT NOT NULL,
    PRIMARY KEY (topic, name)
) {hot};

-- Subscribers outside of Tidemill: each is a position in a topic, with all messages up to (seq, n) behind it. event_type and
-- key_prefix leave out other messages; empty for none left out. target is the JSON of the receiver to which messages are
-- pushed; NULL for a subscriber that reads. attempt fences a sender and its earlier tries. next_try_at is the end of a
-- try, or of a wait after a failure; 0 when neither is. refused_since: since when the receiver answers the next message
-- with an error.
CREATE TABLE outside_subscriber (
    name          {text} PRIMARY KEY,
    topic         {text} NOT NULL,
    event_type    {text} NOT NULL,
    key_prefix    {text} NOT NULL,
    target        {text},
    seq           BIGINT NOT NULL,
    n             BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    attempt       BIGINT NOT NULL DEFAULT 0,
    failures      BIGINT NOT NULL DEFAULT 0,
    refused_since BIGINT,
    error         {text},
    next_try_at   BIGINT NOT NULL DEFAULT 0
) {hot};
CREATE INDEX outside_subscriber_topic ON outside_subscriber (topic, name);
CREATE INDEX outside_subscriber_pushed ON outside_subscriber (next_try_at) WHERE target IS NOT NULL;

-- Messages that a subscriber could not read. Its position has passed them; the reason is kept for a person.
CREATE TABLE quarantined_message (
    topic  {text} NOT NULL,
    seq    BIGINT NOT NULL,
    n      BIGINT NOT NULL,
    name   {text} NOT NULL,
    reason {text} NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (topic, seq, n, name)
);

-- Files to delete: the intent, written before the deed. not_before keeps a file for readers that may still need it.
-- Garbage with a partition key is the files of one change, not a directory.
CREATE TABLE garbage (
    location      {text} PRIMARY KEY,
    dataset_id    {text} NOT NULL,
    write_pointer BIGINT NOT NULL,
    reason        {text} NOT NULL,
    not_before    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0,
    error         {text},
    partition_key {text}
);
CREATE INDEX garbage_due ON garbage (not_before);

-- Data sets and their partitions.

CREATE TABLE dataset (
    dataset_id {text} PRIMARY KEY,
    namespace  {text} NOT NULL,
    name       {text} NOT NULL,
    app        {text},
    kind       {text} NOT NULL,
    location   {text} NOT NULL,
    spec       {text} NOT NULL,
    created_at BIGINT NOT NULL,
    dropped_at BIGINT,
    -- Time travel ends here: no reader can read a snapshot below it.
    horizon    BIGINT NOT NULL DEFAULT 0,
    -- Device and inode of an inbox's folder, while files are in it: an empty folder with another identity is a mount
    -- point without its disk. NULL while the folder is empty.
    root       {text},
    -- The number of its declarations that differed from the previous one.
    generation BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX dataset_kind ON dataset (kind, namespace, name) WHERE dropped_at IS NULL;
CREATE INDEX dataset_prefix ON dataset (name) WHERE dropped_at IS NULL;
CREATE UNIQUE INDEX dataset_name ON dataset (namespace, name) WHERE dropped_at IS NULL;

-- Tables of Hive whose properties have to follow a statement. The row is deleted when the properties are written.
CREATE TABLE hive_note (
    metastore     {text} NOT NULL,
    database_name {text} NOT NULL,
    table_name    {text} NOT NULL,
    -- Properties that Tidemill has or may have written, each with a list of values: JSON.
    own           {text} NOT NULL,
    -- Values of before the declaration, by property, for a table that is dropped here: JSON.
    earlier       {text} NOT NULL,
    seq           BIGINT NOT NULL,
    PRIMARY KEY (metastore, database_name, table_name)
);

-- The column schema of a file set, written by the commit that brings it; change rows carry only its id.
CREATE TABLE dataset_schema (
    dataset_id {text} NOT NULL,
    schema_id  {text} NOT NULL,
    schema     {text} NOT NULL,
    commit_seq BIGINT NOT NULL,
    run_id     {text} NOT NULL,
    PRIMARY KEY (dataset_id, schema_id)
) {clustered};

-- One row for each change of a partition, written once by its commit. Only superseded_seq, expired_at and
-- compacted_seq are set later.
CREATE TABLE partition_change (
    dataset_id     {text} NOT NULL,
    write_pointer  BIGINT NOT NULL,
    partition_key  {text} NOT NULL,
    op             {text} NOT NULL CHECK (op IN ('create', 'append', 'overwrite', 'drop')),
    commit_seq     BIGINT NOT NULL,
    superseded_seq BIGINT,
    delivers       INTEGER NOT NULL CHECK (delivers IN (0, 1)),
    location       {text} NOT NULL,
    manifest       {blob} NOT NULL,
    files          BIGINT NOT NULL,
    bytes          BIGINT NOT NULL,
    row_count      BIGINT,
    schema_id      {text},
    partition_time BIGINT,
    metadata       {text},
    run_id         {text} NOT NULL,
    at             BIGINT NOT NULL,
    -- An expired change has no files, or soon none; the row stays as history.
    expired_at     BIGINT,
    -- As in in_progress.
    logical_time   BIGINT,
    order_time     BIGINT,
    -- The commit of the first compaction that holds the rows of this change.
    compacted_seq  BIGINT,
    PRIMARY KEY (dataset_id, write_pointer, partition_key)
);
CREATE INDEX partition_current ON partition_change (dataset_id, partition_key) WHERE superseded_seq IS NULL;
CREATE INDEX partition_commit ON partition_change (dataset_id, commit_seq);
CREATE INDEX partition_history ON partition_change (dataset_id, partition_key, commit_seq);
CREATE INDEX partition_superseded ON partition_change (dataset_id, superseded_seq) WHERE superseded_seq IS NOT NULL;
CREATE INDEX partition_unmarked ON partition_change (write_pointer, dataset_id);
CREATE INDEX partition_location ON partition_change (dataset_id, location, partition_key);
CREATE INDEX partition_dropped ON partition_change (dataset_id, commit_seq) WHERE op = 'drop';
-- Of a snapshot, whose only partition has the empty key, one version is current: two would be read as one.
CREATE UNIQUE INDEX version_current ON partition_change (dataset_id)
    WHERE partition_key = '' AND superseded_seq IS NULL;
CREATE INDEX version_kept ON partition_change (dataset_id, write_pointer)
    WHERE partition_key = '' AND expired_at IS NULL;
CREATE INDEX partition_by_time ON partition_change (dataset_id, partition_time)
    WHERE superseded_seq IS NULL AND partition_time IS NOT NULL;

-- Compactions: the rows of a partition in fewer files. Changes stay as they were, for consumers and for time travel.
-- superseded_seq is the next compaction's commit, or the commit that replaced or dropped the partition.
CREATE TABLE compaction (
    dataset_id     {text} NOT NULL,
    write_pointer  BIGINT NOT NULL,
    partition_key  {text} NOT NULL,
    commit_seq     BIGINT NOT NULL,
    superseded_seq BIGINT,
    location       {text} NOT NULL,
    manifest       {blob} NOT NULL,
    files          BIGINT NOT NULL,
    bytes          BIGINT NOT NULL,
    row_count      BIGINT NOT NULL,
    run_id         {text} NOT NULL,
    at             BIGINT NOT NULL,
    expired_at     BIGINT,
    PRIMARY KEY (dataset_id, write_pointer, partition_key),
    CHECK (expired_at IS NULL OR superseded_seq IS NOT NULL)
);
CREATE UNIQUE INDEX compaction_current ON compaction (dataset_id, partition_key) WHERE superseded_seq IS NULL;
CREATE INDEX compaction_superseded ON compaction (dataset_id, superseded_seq) WHERE superseded_seq IS NOT NULL;
CREATE INDEX compaction_location ON compaction (dataset_id, location);
CREATE INDEX compaction_tx ON compaction (write_pointer);

-- What is current in each file set, kept by the commits that change it: counting a million partitions takes seconds.
-- Of what a compaction holds, files, bytes and rows are those of the compaction; merged are the files of compactions.
CREATE TABLE fileset_total (
    dataset_id {text} PRIMARY KEY,
    partitions BIGINT NOT NULL,
    files      BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    row_count  BIGINT NOT NULL,
    merged     BIGINT NOT NULL
) {hot};

CREATE TABLE reader_pin (
    pin_id     {text} PRIMARY KEY,
    dataset_id {text} NOT NULL,
    commit_seq BIGINT NOT NULL,
    run_id     {text},
    until      BIGINT
);
CREATE INDEX reader_pin_run ON reader_pin (run_id);
CREATE INDEX reader_pin_dataset ON reader_pin (dataset_id, commit_seq);

-- Consumers.

CREATE TABLE consumer (
    consumer_id       {text} PRIMARY KEY,
    dataset_id        {text} NOT NULL,
    name              {text} NOT NULL,
    start_version     BIGINT NOT NULL,
    versions_to_check {text} NOT NULL,
    spec              {text} NOT NULL,
    revision          BIGINT NOT NULL,
    -- The consumer gets changes that committed at this tick or later.
    since_seq         BIGINT NOT NULL DEFAULT 0,
    -- Partitions that were dropped before a run of the consumer processed them, counted. They are not delivered.
    dropped           BIGINT NOT NULL DEFAULT 0,
    -- After so many failures of a partition, alone, the consumer discards the partition: `Reads(attempts=...)`.
    attempts          BIGINT NOT NULL DEFAULT 3
) {hot};
CREATE UNIQUE INDEX consumer_name ON consumer (dataset_id, name);
CREATE INDEX consumer_prefix ON consumer (name);

-- Consumers as they were before a reset, with the actor, the time and the new start. Claims of their runs keep the
-- old id.
CREATE TABLE consumer_reset (
    consumer_id       {text} PRIMARY KEY,
    dataset_id        {text} NOT NULL,
    name              {text} NOT NULL,
    since_seq         BIGINT NOT NULL,
    start_version     BIGINT NOT NULL,
    versions_to_check {text} NOT NULL,
    to_seq            BIGINT NOT NULL,
    asked             {text} NOT NULL,
    by_whom           {text} NOT NULL,
    at                BIGINT NOT NULL,
    reset_seq         BIGINT NOT NULL
);
CREATE INDEX consumer_reset_name ON consumer_reset (dataset_id, name, reset_seq);

CREATE TABLE consumer_work (
    consumer_id   {text} NOT NULL,
    write_pointer BIGINT NOT NULL,
    partition_key {text} NOT NULL,
    commit_seq    BIGINT NOT NULL,
    state         {text} NOT NULL CHECK (state IN ('new', 'in_progress', 'completed', 'discarded')),
    failures      BIGINT NOT NULL DEFAULT 0,
    not_before    BIGINT NOT NULL DEFAULT 0,
    run_id        {text},
    epoch         BIGINT,
    error         {text},
    -- The run that learnt of the discarded partition: a run that has committed.
    reported_by   {text},
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
CREATE INDEX consumer_work_unreported ON consumer_work (consumer_id, write_pointer)
    WHERE state = 'discarded' AND reported_by IS NULL;

-- Inboxes.

CREATE TABLE inbox_file (
    dataset_id      {text} NOT NULL,
    name            {text} NOT NULL,
    content_version {text} NOT NULL,
    etag            {text} NOT NULL,
    bytes           BIGINT NOT NULL,
    modified_at     BIGINT NOT NULL,
    first_seen      BIGINT NOT NULL,
    -- The tick at which the file was recorded, and announced if it was new.
    seen_seq        BIGINT NOT NULL,
    status          {text} NOT NULL
        CHECK (status IN ('NEW', 'IN_PROGRESS', 'SUCCESS', 'ERROR', 'QUARANTINED', 'IGNORED', 'SKIPPED')),
    failures        BIGINT NOT NULL DEFAULT 0,
    not_before      BIGINT NOT NULL DEFAULT 0,
    error           {text},
    run_id          {text},
    epoch           BIGINT,
    row_count       BIGINT,
    alone           INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
    -- The intent, written with SUCCESS, then its result; and the place of the file. The janitor looks at leave_at,
    -- NULL when nothing is to be done.
    afterwards      {text}
        CHECK (afterwards IN ('archive', 'delete', 'archived', 'deleted', 'replaced', 'gone')),
    archive         {text},
    leave_at        BIGINT,
    -- The time since which reconciliations miss the name of a closed file; NULL while the name is there.
    absent_since    BIGINT,
    -- Tells the processed content from another one of equal size and time. NULL for a content that was never read.
    checksum        {text},
    PRIMARY KEY (dataset_id, name, content_version),
    CHECK (status <> 'IN_PROGRESS' OR run_id IS NOT NULL)
) {clustered};
CREATE INDEX inbox_file_open ON inbox_file (dataset_id, modified_at, name) WHERE status IN ('NEW', 'ERROR');
CREATE INDEX inbox_file_due ON inbox_file (not_before) WHERE status IN ('NEW', 'ERROR') AND not_before > 0;
-- Two versions of one name are never processed at once.
CREATE UNIQUE INDEX inbox_file_claimed ON inbox_file (dataset_id, name) WHERE status = 'IN_PROGRESS';
CREATE INDEX inbox_file_refused ON inbox_file (dataset_id, first_seen) WHERE status = 'QUARANTINED';
CREATE INDEX inbox_file_run ON inbox_file (run_id) WHERE status = 'IN_PROGRESS';
CREATE INDEX inbox_file_seen ON inbox_file (dataset_id, first_seen);
CREATE INDEX inbox_file_leaving ON inbox_file (leave_at) WHERE leave_at IS NOT NULL;

-- The closed records of files that a person had delivered again, with the person and the time.
CREATE TABLE inbox_reprocessed (
    dataset_id      {text} NOT NULL,
    name            {text} NOT NULL,
    run_id          {text} NOT NULL,
    content_version {text} NOT NULL,
    row_count       BIGINT,
    by_whom         {text} NOT NULL,
    at              BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, name, run_id)
) {clustered};

-- One row for each location that is listed: of an inbox, or of a table whose files other programs write. Of such a table
-- only next_listing_at counts: until then one process has charge of the listings.
CREATE TABLE inbox_marker (
    dataset_id      {text} PRIMARY KEY,
    marker          {text},
    next_listing_at BIGINT NOT NULL,
    reconciled_at   BIGINT,
    attempts        BIGINT NOT NULL,
    retry_after     BIGINT NOT NULL,
    -- Positions of the marker by time, as JSON.
    positions       {text} NOT NULL DEFAULT '[]',
    -- A process that replaces a waiting content raises this number: other processes then forget their listings.
    superseded      BIGINT NOT NULL DEFAULT 0,
    -- Files found by the lookback; files found by a reconciliation alone; the longest delay, in milliseconds.
    late_files      BIGINT NOT NULL DEFAULT 0,
    missed_files    BIGINT NOT NULL DEFAULT 0,
    longest_late    BIGINT NOT NULL DEFAULT 0,
    -- The act on a file after the commit that processed it, as the inbox declares it for the next files; NULL for
    -- none.
    afterwards      {text} CHECK (afterwards IN ('archive', 'delete')),
    archive         {text},
    -- Names that can never be processed, as the last whole listing saw them: JSON, [reason, number, example].
    unusable        {text} NOT NULL DEFAULT '[]',
    -- The process that lists the inbox while its charge lasts. NULL if the inbox is due at `next_listing_at`.
    in_charge       {text}
) {hot};
CREATE INDEX inbox_marker_due ON inbox_marker (next_listing_at) WHERE in_charge IS NULL;
CREATE INDEX inbox_marker_in_charge ON inbox_marker (in_charge);

-- The end of the charge that a process has of inboxes: one row for all inboxes of the process.
CREATE TABLE inbox_charge (
    process {text} PRIMARY KEY,
    until   BIGINT NOT NULL
) {hot};

-- Arrival expectations of data sets of all kinds: one row for each data set that declares one.
CREATE TABLE expectation (
    dataset_id    {text} PRIMARY KEY,
    declared      {text} NOT NULL,
    since_at      BIGINT NOT NULL,
    -- The last arrival in an inbox. The last arrival in another data set is found in its changes.
    arrived_at    BIGINT,
    next_check_at BIGINT NOT NULL,
    -- The time since which the expectation is broken. The break that began then is announced; NULL while none is.
    broken_since  BIGINT
) {hot};
CREATE INDEX expectation_due ON expectation (next_check_at);
CREATE INDEX expectation_broken ON expectation (broken_since) WHERE broken_since IS NOT NULL;

-- Watermarks and windows. Instants (of watermarks, of slots, of windows' ends) are microseconds since 1970 in UTC;
-- slot_time, window_start and window_end are wall-clock times, in microseconds too.

-- value is W; target is where it stands once no open transaction holds it back; next_time is the slot for which an
-- unbroken run of slots waits; next_check_at is when a complete slot ahead of the clock comes due; committed_at is the
-- time of the last commit to the file set. Such a commit may change no partition: it completes slots, or brings markers.
CREATE TABLE watermark (
    dataset_id    {text} PRIMARY KEY,
    declared      {text} NOT NULL,
    gap           {text} NOT NULL CHECK (gap IN ('skip', 'wait')),
    -- For how long (milliseconds) a missing slot is waited for, once a later slot is complete. NULL: for ever.
    gap_wait      BIGINT,
    row_lag       BIGINT NOT NULL,
    max_ahead     BIGINT NOT NULL,
    -- 1: rows outside their partition count in the windows of their own times.
    includes      INTEGER NOT NULL CHECK (includes IN (0, 1)),
    -- Time without a commit (milliseconds) after which queries over several tables do not wait for this one. NULL: never.
    idle_timeout  BIGINT,
    value         BIGINT,
    -- The value up to which messages have announced the moves. Quiet runs move value alone.
    announced     BIGINT,
    target        BIGINT,
    next_time     BIGINT,
    next_check_at BIGINT,
    committed_at  BIGINT
) {hot};

-- Every move of a watermark, so that a snapshot has the value of its time. cause is a run, the keeper, or the person
-- that asked. A watermark moves back by hand, and when its times are read in another way: rewinds = 1 marks such a
-- move. value is NULL when no partition has a time any more. All other moves go forward.
CREATE TABLE watermark_move (
    dataset_id {text} NOT NULL,
    commit_seq BIGINT NOT NULL,
    value      BIGINT,
    previous   BIGINT,
    cause      {text} NOT NULL,
    at         BIGINT NOT NULL,
    rewinds    INTEGER NOT NULL DEFAULT 0 CHECK (rewinds IN (0, 1)),
    PRIMARY KEY (dataset_id, commit_seq),
    CHECK (rewinds = 1 OR (value IS NOT NULL AND (previous IS NULL OR value > previous))),
    CHECK (rewinds = 0 OR (previous IS NOT NULL AND (value IS NULL OR value < previous)))
) {clustered};

CREATE TABLE time_slot (
    dataset_id {text} NOT NULL,
    slot_time  BIGINT NOT NULL,
    begins_at  BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL,
    next_time  BIGINT NOT NULL,
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1)),
    completed_at BIGINT,
    PRIMARY KEY (dataset_id, slot_time)
) {clustered};
CREATE INDEX time_slot_complete ON time_slot (dataset_id, ends_at) WHERE complete = 1;
CREATE INDEX time_slot_open ON time_slot (dataset_id, slot_time) WHERE complete = 0;

-- The partitions of a slot that are there; only where the slot waits for several.
CREATE TABLE slot_member (
    dataset_id {text} NOT NULL,
    slot_time  BIGINT NOT NULL,
    member     {text} NOT NULL,
    PRIMARY KEY (dataset_id, slot_time, member)
) {clustered};

-- Partitions that are there and not complete, of those that a time slot waits for. marked is 0 while the marker of the
-- directory is missing; nothing may change before due_at. A complete time slot has no rows.
CREATE TABLE slot_wait (
    dataset_id    {text} NOT NULL,
    slot_time     BIGINT NOT NULL,
    partition_key {text} NOT NULL,
    marked        INTEGER NOT NULL CHECK (marked IN (0, 1)),
    due_at        BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, slot_time, partition_key)
) {clustered};
CREATE INDEX slot_wait_due ON slot_wait (due_at) WHERE marked = 1;

-- The current partitions of a file set with a watermark whose keys have no time. They are few, and asked for often.
CREATE TABLE parked_partition (
    dataset_id    {text} NOT NULL,
    partition_key {text} NOT NULL,
    since         BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, partition_key)
) {clustered};
CREATE INDEX parked_partition_since ON parked_partition (dataset_id, since);

-- Results are published up to computed. All changes with a commit sequence below seen are in them.
CREATE TABLE window_program (
    program_id    {text} PRIMARY KEY,
    name          {text} NOT NULL,
    definition    {text} NOT NULL,
    computed      BIGINT,
    seen          BIGINT NOT NULL,
    revision      BIGINT NOT NULL,
    -- The number of resets. Carries of before a reset do not count.
    resets        BIGINT NOT NULL DEFAULT 0,
    -- The last commit that has published windows, reset them or changed their definition. A run that does not see this
    -- commit goes on from another state than its snapshot shows.
    moved_seq     BIGINT NOT NULL DEFAULT 0,
    -- The time at which the keeper announces the work that is left, and the time since which no run has completed.
    retry_at      BIGINT,
    failing_since BIGINT
) {hot};
CREATE INDEX window_program_retry ON window_program (retry_at) WHERE retry_at IS NOT NULL;

-- A file set that a window program reads, and the late policy of the file set. Windows are closed when the watermark of
-- the file set is lag past their end. The program has listed the partitions of all commits before outside_seen, to read
-- the times of rows outside their partition (outside_time).
CREATE TABLE window_input (
    program_id {text} NOT NULL,
    dataset_id {text} NOT NULL,
    late       {text} NOT NULL,
    lag        BIGINT NOT NULL DEFAULT 0,
    outside_seen BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (program_id, dataset_id)
) {clustered};
CREATE INDEX window_input_dataset ON window_input (dataset_id);

-- The output of a window program, and the instants before which no new row has its window_time or its window_start.
-- A watermark for one of these columns follows the least of its programs.
CREATE TABLE window_output (
    program_id  {text} PRIMARY KEY,
    dataset_id  {text} NOT NULL,
    time_value  BIGINT,
    start_value BIGINT
) {hot};
CREATE INDEX window_output_dataset ON window_output (dataset_id);

-- The times [begins, ends) of the rows that a commit of a window program has changed, until the window programs that
-- read the file set have seen the commit.
CREATE TABLE window_change (
    dataset_id {text} NOT NULL,
    commit_seq BIGINT NOT NULL,
    begins     BIGINT NOT NULL,
    ends       BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, commit_seq, begins)
) {clustered};

-- The transaction that wrote the newest version of a window's rows. A later reset of the program makes the row stale, and
-- so does a run that leaves a late window to later runs.
CREATE TABLE window_result (
    program_id    {text} NOT NULL,
    window_end    BIGINT NOT NULL,
    window_start  BIGINT NOT NULL,
    write_pointer BIGINT NOT NULL,
    stale         INTEGER NOT NULL DEFAULT 0 CHECK (stale IN (0, 1)),
    PRIMARY KEY (program_id, window_end, window_start)
) {clustered};
CREATE INDEX window_result_stale ON window_result (program_id, window_end) WHERE stale = 1;
CREATE INDEX window_result_written ON window_result (write_pointer);

-- Windows that could not be computed, while others could: with the error, until a later try succeeds.
CREATE TABLE window_failure (
    program_id   {text} NOT NULL,
    window_end   BIGINT NOT NULL,
    window_start BIGINT NOT NULL,
    reason       {text} NOT NULL,
    partitions   {text} NOT NULL,
    since        BIGINT NOT NULL,
    tried_at     BIGINT NOT NULL,
    PRIMARY KEY (program_id, window_end, window_start)
) {clustered};

-- Rows of late partitions that count in no window, since the window program drops late rows: by program and
-- partition. slot_time is the partition's time.
CREATE TABLE left_out (
    program_id    {text} NOT NULL,
    dataset_id    {text} NOT NULL,
    partition_key {text} NOT NULL,
    slot_time     BIGINT NOT NULL,
    late_rows     BIGINT NOT NULL,
    counted_at    BIGINT NOT NULL,
    -- Rows outside of the time of their partition, where the program drops these: the number at its last read.
    outside_rows  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (program_id, dataset_id, partition_key)
) {clustered};

-- Stretches of time with rows outside their partition, as a window program has read the partition last: a JSON list of
-- [begins, ends] in microseconds. Commits from unread_since on could not be read by any run; NULL if all are read.
-- Only of programs over tables whose policy counts such rows.
CREATE TABLE outside_time (
    program_id    {text} NOT NULL,
    dataset_id    {text} NOT NULL,
    partition_key {text} NOT NULL,
    stretches     {text} NOT NULL,
    unread_since  BIGINT,
    PRIMARY KEY (program_id, dataset_id, partition_key)
) {clustered};
CREATE INDEX outside_time_unread ON outside_time (program_id, dataset_id) WHERE unread_since IS NOT NULL;

-- Apps, programs and runs.

CREATE TABLE app (
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    version     BIGINT NOT NULL,
    spec        {text} NOT NULL,
    deployed_at BIGINT NOT NULL,
    -- A deleted app is still known: its data sets belong to the project that deployed them.
    deleted     INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1)),
    PRIMARY KEY (namespace, name)
);
CREATE INDEX app_prefix ON app (name) WHERE deleted = 0;

-- The deployments of an app that changed something, numbered. bundle is their code. file is the app file, relative to
-- the folder of its project where the file lies in it. changes is JSON, lines for people.
CREATE TABLE deployment (
    namespace      {text} NOT NULL,
    app            {text} NOT NULL,
    version        BIGINT NOT NULL,
    bundle         {text} NOT NULL,
    file           {text} NOT NULL,
    actor          {text} NOT NULL,
    deployed_at    BIGINT NOT NULL,
    changes        {text} NOT NULL,
    -- The deployment whose code and declarations a rollback deployed again. NULL for other deployments.
    rolled_back_to BIGINT,
    -- JSON of the app as this deployment declared it, while the bundle is kept. A rollback deploys it again.
    declaration    {text},
    -- The bundle is kept for a rollback.
    keeps          INTEGER NOT NULL DEFAULT 1 CHECK (keeps IN (0, 1)),
    PRIMARY KEY (namespace, app, version)
) {clustered};
CREATE INDEX deployment_keeps ON deployment (bundle) WHERE keeps = 1;

-- Code by its content: the app file and what it imports from its project, as a zip. A large bundle lies at location.
-- files is JSON, the hash of each file by its name. leaving is the intent to delete a bundle that nothing names.
CREATE TABLE bundle (
    digest    {text} PRIMARY KEY,
    files     {text} NOT NULL,
    bytes     BIGINT NOT NULL,
    content   {blob},
    location  {text},
    leaving   INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1)),
    packed_at BIGINT NOT NULL,
    CHECK ((content IS NULL) <> (location IS NULL))
);

-- The intent to write the file of a large bundle; the deployment that names the file deletes the row. An abandoned
-- upload belongs to no deployment: the janitor deletes its file.
CREATE TABLE bundle_upload (
    location  {text} PRIMARY KEY,
    begun_at  BIGINT NOT NULL,
    abandoned INTEGER NOT NULL DEFAULT 0 CHECK (abandoned IN (0, 1))
);

CREATE TABLE program (
    program_id {text} PRIMARY KEY,
    namespace  {text} NOT NULL,
    app        {text} NOT NULL,
    name       {text} NOT NULL,
    kind       {text} NOT NULL,
    spec       {text} NOT NULL,
    -- The digest of its code; empty before its deployment.
    bundle     {text} NOT NULL DEFAULT '',
    -- The deployment of its app that registered the program as it is.
    app_version BIGINT NOT NULL DEFAULT 0,
    -- The named Spark profile; empty for the settings of [spark]. NULL: the program needs no Spark.
    spark_profile {text},
    -- The app does not declare the program any more: its runs and its consumers stay, and nothing starts it.
    retired    INTEGER NOT NULL DEFAULT 0 CHECK (retired IN (0, 1))
);
CREATE INDEX program_prefix ON program (name) WHERE retired = 0;
CREATE UNIQUE INDEX program_name ON program (namespace, app, name);
CREATE INDEX program_bundle ON program (bundle);

-- Worker programs: the runner keeps so many runs of each alive; after a failure it starts none before not_before.
CREATE TABLE worker (
    program_id {text} PRIMARY KEY,
    instances  BIGINT NOT NULL CHECK (instances >= 0),
    failures   BIGINT NOT NULL DEFAULT 0,
    not_before BIGINT NOT NULL DEFAULT 0
) {hot};

CREATE TABLE run (
    run_id              {text} PRIMARY KEY,
    kind                {text} NOT NULL CHECK (kind IN ('program', 'external', 'workflow')),
    program_id          {text},
    -- The namespace of its program; NULL for a run without a program.
    namespace           {text},
    schedule_id         {text},
    job_id              {text},
    state               {text} NOT NULL CHECK (state IN
        ('PENDING', 'STARTING', 'RUNNING', 'STOPPING', 'COMPLETED', 'FAILED', 'KILLED', 'REJECTED')),
    epoch               BIGINT NOT NULL DEFAULT 0,
    failures            BIGINT NOT NULL DEFAULT 0,
    losses              BIGINT NOT NULL DEFAULT 0,
    priority            BIGINT NOT NULL DEFAULT 0,
    deadline            BIGINT,
    arguments           {text} NOT NULL,
    triggered_by        {text} NOT NULL,
    write_pointer       BIGINT,
    owner               {text},
    host                {text},
    pid                 BIGINT,
    lease_until         BIGINT,
    kill_asked          INTEGER NOT NULL DEFAULT 0 CHECK (kill_asked IN (0, 1)),
    not_before          BIGINT NOT NULL DEFAULT 0,
    created_at          BIGINT NOT NULL,
    started_at          BIGINT,
    ended_at            BIGINT,
    exit_reason         {text},
    log_location        {text},
    facts               {text},
    -- The digest of its attempt's code, and the deployment of its app; empty and 0 before the first attempt.
    bundle              {text} NOT NULL DEFAULT '',
    app_version         BIGINT NOT NULL DEFAULT 0,
    -- The time at which the work of a run came. Due runs go by priority, then by this time, after any number of
    -- attempts.
    came_at             BIGINT NOT NULL DEFAULT 0,
    -- 1 if the program was declared to need Spark when the run was made. While Spark starts, the runner takes other
    -- runs only, by an index of its own: it must not read past thousands that would wait too.
    spark               INTEGER NOT NULL DEFAULT 0,
    -- The runner's process: its boot, container, id and start. A runner on the same machine that finds this process
    -- ended fences the run at once, before the end of its lease.
    owner_process       {text},
    -- The transaction of a run's first attempt.
    first_write_pointer BIGINT,
    -- The time at which the driver began to check and publish the outputs, for metrics. NULL for other runs.
    commit_began_at     BIGINT,
    -- The `Cause` of the last attempt that ended without a commit. NULL before the first.
    exit_cause          {text},
    -- The SHA-256 of the token that the process of the last attempt got. The token lives while that attempt is RUNNING.
    token_digest        {text},
    -- Milliseconds for which cores were held by the attempts that their drivers have ended. NULL before the first.
    core_time           BIGINT,
    -- The backfill that made the run. Such a run has no slot of its program, and constraints do not look at it.
    backfill_id         {text},
    -- The bundle whose code each attempt executes, of a replay. NULL: the one that the program has then.
    code                {text},
    -- The run that a replay repeats. NULL for other runs.
    replay_of           {text},
    CHECK ((ended_at IS NOT NULL) = (state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED'))),
    -- A runner would take it.
    CHECK (kind <> 'workflow' OR state <> 'PENDING')
) {hot};
CREATE INDEX run_code ON run (code) WHERE code IS NOT NULL AND ended_at IS NULL;
CREATE UNIQUE INDEX run_job ON run (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX run_live ON run (run_id) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');
CREATE INDEX run_program ON run (program_id, created_at DESC);
CREATE INDEX run_success ON run (program_id, ended_at DESC) WHERE state = 'COMPLETED';
CREATE INDEX run_own_success ON run (program_id, ended_at DESC) WHERE state = 'COMPLETED' AND backfill_id IS NULL;
CREATE INDEX run_failure ON run (program_id, ended_at DESC) WHERE state = 'FAILED';
CREATE INDEX run_schedule ON run (schedule_id, created_at DESC);
CREATE INDEX run_ended ON run (state, created_at DESC, run_id DESC)
    WHERE state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED');
CREATE INDEX run_ended_of_program ON run (program_id, state, created_at DESC, run_id DESC)
    WHERE state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED');
CREATE INDEX run_namespace ON run (namespace, created_at DESC, run_id DESC);
CREATE INDEX run_ended_of_namespace ON run (namespace, state, created_at DESC, run_id DESC)
    WHERE state IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED');
CREATE INDEX run_created ON run (created_at DESC, run_id DESC);
CREATE INDEX run_backfill ON run (backfill_id, state) WHERE backfill_id IS NOT NULL;
CREATE INDEX run_bundle ON run (bundle) WHERE state IN ('STARTING', 'RUNNING', 'STOPPING');
CREATE INDEX run_pending ON run (priority DESC, came_at, created_at, run_id) WHERE state = 'PENDING';
CREATE INDEX run_retry ON run (not_before) WHERE state = 'PENDING' AND not_before > 0;
CREATE INDEX run_deadline ON run (deadline, run_id) WHERE state = 'PENDING' AND deadline IS NOT NULL;
CREATE INDEX run_pending_plain ON run (priority DESC, came_at, created_at, run_id)
    WHERE state = 'PENDING' AND spark = 0;

-- The input of each run, for retry, provenance and audit. item is a partition key, or the name of an inbox's file. What a
-- worker has taken has the sequence of the commit that recorded it: a worker goes on, and its old input is deleted first.
CREATE TABLE run_input (
    run_id          {text} NOT NULL,
    dataset_id      {text} NOT NULL,
    write_pointer   BIGINT NOT NULL,
    item            {text} NOT NULL,
    content_version {text} NOT NULL DEFAULT '',
    commit_seq      BIGINT,
    PRIMARY KEY (run_id, dataset_id, write_pointer, item, content_version)
) {clustered};
CREATE INDEX run_input_item ON run_input (dataset_id, item, write_pointer);
CREATE INDEX run_input_of_worker ON run_input (commit_seq) WHERE commit_seq IS NOT NULL;

-- A backfill: runs of one program over parts of the past. choice says for people by what its items were chosen, as JSON.
-- With takes_all, items are processed whatever they need. The counts are those of its items; they change with the items,
-- under the lock of this row.
CREATE TABLE backfill (
    backfill_id {text} PRIMARY KEY,
    program_id  {text} NOT NULL,
    namespace   {text} NOT NULL,
    item_kind   {text} NOT NULL CHECK (item_kind IN ('partitions', 'times', 'runs', 'versions')),
    takes_all   INTEGER NOT NULL CHECK (takes_all IN (0, 1)),
    choice      {text} NOT NULL,
    -- The file set whose partitions the items name; NULL for items of another kind.
    dataset_id  {text},
    arguments   {text} NOT NULL,
    state       {text} NOT NULL CHECK (state IN ('RUNNING', 'PAUSED', 'CANCELLED', 'COMPLETED')),
    -- The reason for which it paused by itself.
    reason      {text} NOT NULL DEFAULT '',
    concurrency BIGINT NOT NULL CHECK (concurrency > 0),
    priority    BIGINT NOT NULL,
    quiet       INTEGER NOT NULL CHECK (quiet IN (0, 1)),
    actor       {text} NOT NULL,
    waiting     BIGINT NOT NULL,
    running     BIGINT NOT NULL DEFAULT 0,
    done        BIGINT NOT NULL DEFAULT 0,
    failed      BIGINT NOT NULL DEFAULT 0,
    dropped     BIGINT NOT NULL DEFAULT 0,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT,
    CHECK (waiting >= 0 AND running >= 0 AND done >= 0 AND failed >= 0 AND dropped >= 0),
    CHECK ((ended_at IS NOT NULL) = (state IN ('CANCELLED', 'COMPLETED'))),
    CHECK (state <> 'COMPLETED' OR waiting + running = 0),
    CHECK (state <> 'CANCELLED' OR waiting = 0)
) {hot};
CREATE INDEX backfill_created ON backfill (created_at DESC, backfill_id DESC);
CREATE INDEX backfill_program ON backfill (program_id, created_at DESC, backfill_id DESC);
CREATE INDEX backfill_namespace ON backfill (namespace, created_at DESC, backfill_id DESC);
CREATE INDEX backfill_ended ON backfill (ended_at) WHERE ended_at IS NOT NULL AND running = 0;
CREATE INDEX backfill_state ON backfill (state, created_at DESC, backfill_id DESC);
-- Backfills that an advance left with waiting items and free places.
CREATE INDEX backfill_unfilled ON backfill (backfill_id)
 WHERE state = 'RUNNING' AND waiting > 0 AND running < concurrency;
CREATE INDEX backfill_stopped ON backfill (namespace, created_at DESC, backfill_id DESC)
 WHERE state = 'PAUSED' AND reason <> '' OR state = 'COMPLETED' AND failed > 0;

-- An item is a partition key, a logical time, or the id of a run that is repeated.
CREATE TABLE backfill_item (
    backfill_id {text} NOT NULL,
    no          BIGINT NOT NULL,
    item        {text} NOT NULL,
    state       {text} NOT NULL DEFAULT 'WAITING' CHECK (state IN ('WAITING', 'RUNNING', 'DONE', 'FAILED', 'DROPPED')),
    run_id      {text},
    why         {text} NOT NULL DEFAULT '',
    PRIMARY KEY (backfill_id, no),
    CHECK (run_id IS NOT NULL OR state NOT IN ('RUNNING', 'DONE'))
) {clustered};
CREATE INDEX backfill_item_state ON backfill_item (backfill_id, state, no);
CREATE UNIQUE INDEX backfill_item_running ON backfill_item (run_id) WHERE state = 'RUNNING';

-- Runs of workflows. spec is the graph as it was when the run was made. Each take and each end of a run of a node raises
-- revision.
-- holding says what has become of the claims of the nodes: a failed run keeps them until holds_until, for a run that
-- goes on with them, which is then resumed_by.
CREATE TABLE workflow_run (
    run_id      {text} PRIMARY KEY,
    spec        {text} NOT NULL,
    revision    BIGINT NOT NULL DEFAULT 0,
    holding     {text} NOT NULL DEFAULT 'nothing' CHECK (holding IN
                    ('nothing', 'held', 'closed', 'returned', 'resumed')),
    holds_until BIGINT,
    resumed_by  {text},
    -- Nodes that could not be started when a node ended last, each with the reason, as JSON.
    faults      {text} NOT NULL DEFAULT '{}'
) {hot};
CREATE INDEX workflow_run_due ON workflow_run (holds_until) WHERE holds_until IS NOT NULL;

-- Nodes of a workflow's run that have a run, maybe one of an earlier run of the workflow. outcome is NULL while that run
-- is under way; result has the values that it has put, as JSON.
CREATE TABLE workflow_node (
    workflow_id {text} NOT NULL,
    node        {text} NOT NULL,
    run_id      {text} NOT NULL,
    outcome     {text} CHECK (outcome IN ('COMPLETED', 'NO_INPUT', 'FAILED', 'KILLED', 'REJECTED')),
    reason      {text} NOT NULL DEFAULT '',
    result      {text} NOT NULL DEFAULT '{}',
    PRIMARY KEY (workflow_id, node)
) {clustered};
CREATE INDEX workflow_node_run ON workflow_node (run_id);

-- slot_limit is only the row to lock. The rows of slot under it are the slots in use.
CREATE TABLE slot_limit (
    -- The last launches and places of a namespace, in the rows `launches:NAMESPACE`, as JSON.
    launches  {text},
    limit_key {text} PRIMARY KEY
) {hot};

CREATE TABLE slot (
    limit_key {text} NOT NULL,
    run_id    {text} NOT NULL,
    taken_at  BIGINT NOT NULL,
    PRIMARY KEY (limit_key, run_id)
) {clustered};
CREATE INDEX slot_run ON slot (run_id);

-- Nodes: processes with the roles scheduler, runner and janitor, or some of them. roles is a JSON list. A node renews
-- seen_at every five minutes, and deletes its row at its end: a row that is not renewed is that of a node that died.
CREATE TABLE node (
    node_id    {text} PRIMARY KEY,
    host       {text} NOT NULL,
    -- The process, as `Spawner.identity` names it.
    process    {text} NOT NULL,
    roles      {text} NOT NULL,
    -- The runs on which its runner works at a time; 0 without a runner.
    slots      BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    drains     INTEGER NOT NULL DEFAULT 0 CHECK (drains IN (0, 1))
) {hot};
CREATE INDEX node_seen ON node (seen_at);

-- Schedules and jobs.

CREATE TABLE schedule (
    schedule_id {text} PRIMARY KEY,
    namespace   {text} NOT NULL,
    app         {text} NOT NULL,
    name        {text} NOT NULL,
    generation  BIGINT NOT NULL,
    created_seq BIGINT NOT NULL,
    since_seq   BIGINT NOT NULL,
    since_at    BIGINT NOT NULL,
    program_id  {text} NOT NULL,
    spec        {text} NOT NULL,
    priority    BIGINT NOT NULL DEFAULT 0,
    owner       {text} NOT NULL CHECK (owner IN ('app', 'ops')),
    status      {text} NOT NULL CHECK (status IN ('SUSPENDED', 'SCHEDULED')),
    suspended_at   BIGINT,
    suspended_mode {text} CHECK (suspended_mode IN ('drop', 'hold', 'backlog')),
    CHECK ((status = 'SUSPENDED') = (suspended_at IS NOT NULL)),
    CHECK ((status = 'SUSPENDED') = (suspended_mode IS NOT NULL))
);
CREATE INDEX schedule_prefix ON schedule (name);
CREATE UNIQUE INDEX schedule_name ON schedule (namespace, app, name);
CREATE INDEX schedule_program ON schedule (program_id, namespace, app, name);
CREATE INDEX schedule_status ON schedule (status, namespace, app, name);
CREATE INDEX schedule_suspended ON schedule (suspended_at) WHERE suspended_at IS NOT NULL;

-- The messages that a schedule was not fed, as it was suspended or changed: their number, the first and the last.
CREATE TABLE passed_while_suspended (
    schedule_id {text} NOT NULL,
    topic       {text} NOT NULL,
    messages    BIGINT NOT NULL,
    first_seq   BIGINT NOT NULL,
    first_n     BIGINT NOT NULL,
    last_seq    BIGINT NOT NULL,
    last_n      BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, topic)
) {clustered};

-- The types of a schedule's trigger and of its parts, for lists: cron, all_of, …
CREATE TABLE trigger_type (
    schedule_id  {text} NOT NULL,
    trigger_type {text} NOT NULL,
    namespace    {text} NOT NULL,
    app          {text} NOT NULL,
    name         {text} NOT NULL,
    PRIMARY KEY (schedule_id, trigger_type)
) {clustered};
CREATE INDEX trigger_type_name ON trigger_type (trigger_type, namespace, app, name);

-- The longest window (milliseconds) in which the constraints of a schedule count the launches of a program. Retention keeps
-- the runs of the program that are younger.
CREATE TABLE start_window (
    schedule_id {text} NOT NULL,
    program_id  {text} NOT NULL,
    length      BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, program_id)
) {clustered};
CREATE INDEX start_window_program ON start_window (program_id, length);

-- The reverse index of the schedule store (seed 001): a message costs look-ups by its event key.
CREATE TABLE trigger_key (
    event_key   {text} NOT NULL,
    schedule_id {text} NOT NULL,
    trigger_no  BIGINT NOT NULL,
    PRIMARY KEY (event_key, schedule_id, trigger_no)
) {clustered};
CREATE INDEX trigger_key_schedule ON trigger_key (schedule_id);

CREATE TABLE timer (
    schedule_id  {text} NOT NULL,
    trigger_no   BIGINT NOT NULL,
    next_fire_at BIGINT NOT NULL,
    -- A time trigger whose schedule wants every missed fire has one at a time in a job. behind is the job whose end
    -- comes before the next fire; such a timer is not in the index of due timers.
    behind       {text},
    -- The time from which a timer of `Every` counts; none for others. A time in the future shows a clock that was set
    -- back.
    counted_from BIGINT,
    PRIMARY KEY (schedule_id, trigger_no)
) {hot};
CREATE INDEX timer_due ON timer (next_fire_at, schedule_id, trigger_no) WHERE behind IS NULL;
CREATE INDEX timer_behind ON timer (behind) WHERE behind IS NOT NULL;
CREATE INDEX timer_counted ON timer (counted_from) WHERE counted_from IS NOT NULL;

-- Ends of periods that a watermark has passed and that wait for runs of their own, from the next up to the last.
-- The periods are counted on the wall clock of zone. behind is the job whose end comes before the next run.
CREATE TABLE boundary (
    schedule_id {text} NOT NULL,
    trigger_no  BIGINT NOT NULL,
    next_at     BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    zone        {text} NOT NULL,
    behind      {text},
    PRIMARY KEY (schedule_id, trigger_no)
) {hot};

CREATE TABLE fire (
    schedule_id {text} NOT NULL,
    generation  BIGINT NOT NULL,
    trigger_no  BIGINT NOT NULL,
    fire_time   BIGINT NOT NULL,
    state       {text} NOT NULL,
    job_id      {text},
    PRIMARY KEY (schedule_id, generation, trigger_no, fire_time)
) {clustered};
CREATE INDEX fire_by_time ON fire (fire_time);

CREATE TABLE job (
    job_id        {text} PRIMARY KEY,
    schedule_id   {text} NOT NULL,
    generation    BIGINT NOT NULL,
    state         {text} NOT NULL CHECK (state IN ('PENDING_TRIGGER', 'PENDING_CONSTRAINT')),
    created_at    BIGINT NOT NULL,
    satisfied_at  BIGINT,
    next_check_at BIGINT,
    priority      BIGINT NOT NULL DEFAULT 0,
    deadline      BIGINT,
    progress      {text},
    verdict       {text},
    revision      BIGINT NOT NULL DEFAULT 0
) {hot};
CREATE INDEX job_due ON job (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE UNIQUE INDEX job_schedule ON job (schedule_id);
CREATE INDEX job_state ON job (state, job_id);
CREATE INDEX job_satisfied ON job (satisfied_at, job_id) WHERE satisfied_at IS NOT NULL;

CREATE TABLE job_message (
    job_id     {text} NOT NULL,
    topic      {text} NOT NULL,
    seq        BIGINT NOT NULL,
    n          BIGINT NOT NULL,
    trigger_no BIGINT NOT NULL,
    PRIMARY KEY (job_id, topic, seq, n, trigger_no)
) {clustered};

-- The jobs to check again after a change, by its key: slots:<limit key>, idle:<limit key>. A job with `most` can start
-- once the slots in use and the jobs with the better turn together are fewer. NULL: check the job after each change.
CREATE TABLE job_waits (
    wait_key {text} NOT NULL,
    job_id   {text} NOT NULL,
    most     BIGINT,
    PRIMARY KEY (wait_key, job_id)
) {clustered};
CREATE INDEX job_waits_job ON job_waits (job_id);

CREATE TABLE job_history (
    job_id      {text} PRIMARY KEY,
    schedule_id {text} NOT NULL,
    generation  BIGINT NOT NULL,
    outcome     {text} NOT NULL,
    run_id      {text},
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL,
    detail      {text}
);
CREATE INDEX job_history_schedule ON job_history (schedule_id, ended_at DESC);

-- The audit log.

-- Changes that people and programs asked for, each written by the transaction of its change. actor asked, action is
-- the noun and verb of the operation, subject the name or id of the thing, detail JSON. Ids sort about by time.
CREATE TABLE audit (
    audit_id {text} PRIMARY KEY,
    at       BIGINT NOT NULL,
    actor    {text} NOT NULL,
    action   {text} NOT NULL,
    subject  {text} NOT NULL,
    detail   {text} NOT NULL
);
CREATE INDEX audit_subject ON audit (subject, audit_id);
CREATE INDEX audit_actor ON audit (actor, audit_id);

-- Alerts.

-- Rules, of an app or, where app is empty, of a person. next_look_at is when time alone could begin or end the state of
-- a rule; NULL for never. looks_after: the end of a run could, too, any commit, or the machine that looks.
CREATE TABLE alert_rule (
    rule_id      {text} PRIMARY KEY,
    namespace    {text} NOT NULL,
    app          {text} NOT NULL,
    name         {text} NOT NULL,
    spec         {text} NOT NULL,
    looks_after  {text} NOT NULL CHECK (looks_after IN ('', 'runs', 'commits', 'machine')),
    -- 1 while an alert of the rule is open: a commit could end it.
    is_open      INTEGER NOT NULL DEFAULT 0 CHECK (is_open IN (0, 1)),
    next_look_at BIGINT,
    silent_until BIGINT,
    -- Ends of the silences of single subjects, as JSON by subject.
    silent_subjects {text} NOT NULL DEFAULT '{}'
) {hot};
CREATE UNIQUE INDEX alert_rule_name ON alert_rule (namespace, name);
CREATE INDEX alert_rule_prefix ON alert_rule (name);
CREATE INDEX alert_rule_app ON alert_rule (namespace, app, name);
CREATE INDEX alert_rule_look ON alert_rule (next_look_at) WHERE next_look_at IS NOT NULL;
CREATE INDEX alert_rule_after ON alert_rule (looks_after) WHERE looks_after <> '';
CREATE INDEX alert_rule_open ON alert_rule (rule_id) WHERE is_open = 1;

-- Alerts: one for each begin of the state of a rule, until its end. notified_at: when its targets were last notified;
-- NULL while a silence keeps it from them. Ids sort about by time.
CREATE TABLE alert (
    alert_id        {text} PRIMARY KEY,
    rule_id         {text} NOT NULL,
    namespace       {text} NOT NULL,
    rule            {text} NOT NULL,
    subject         {text} NOT NULL,
    state           {text} NOT NULL CHECK (state IN ('OPEN', 'ACKNOWLEDGED', 'RESOLVED')),
    why             {text} NOT NULL,
    since           BIGINT NOT NULL,
    opened_at       BIGINT NOT NULL,
    notified_at     BIGINT,
    acknowledged_by {text},
    resolved_at     BIGINT,
    renewals        BIGINT NOT NULL DEFAULT 0,
    CHECK ((resolved_at IS NOT NULL) = (state = 'RESOLVED'))
) {hot};
CREATE UNIQUE INDEX alert_live ON alert (rule_id, subject) WHERE state <> 'RESOLVED';
CREATE INDEX alert_unresolved ON alert (alert_id) WHERE state <> 'RESOLVED';
CREATE INDEX alert_of_rule ON alert (rule_id, alert_id);
CREATE INDEX alert_namespace ON alert (namespace, alert_id);
CREATE INDEX alert_unresolved_of ON alert (namespace, alert_id) WHERE state <> 'RESOLVED';
CREATE INDEX alert_resolved ON alert (resolved_at) WHERE resolved_at IS NOT NULL;

-- The outbox: the notices to targets, each in the transaction that it is about. target is its JSON. Of the waiting
-- deliveries of a target only the first has a time of its next try: they are sent in order.
CREATE TABLE delivery (
    delivery_id {text} PRIMARY KEY,
    target      {text} NOT NULL,
    seq         BIGINT NOT NULL,
    n           BIGINT NOT NULL,
    about       {text} NOT NULL,
    event       {text} NOT NULL,
    body        {text} NOT NULL,
    state       {text} NOT NULL CHECK (state IN ('WAITING', 'SENT', 'DEAD')),
    attempt     BIGINT NOT NULL DEFAULT 0,
    error       {text},
    made_at     BIGINT NOT NULL,
    next_try_at BIGINT,
    ended_at    BIGINT
) {hot};
CREATE UNIQUE INDEX delivery_waiting ON delivery (target, seq, n) WHERE state = 'WAITING';
CREATE INDEX delivery_state ON delivery (state, delivery_id);
CREATE INDEX delivery_due ON delivery (next_try_at) WHERE next_try_at IS NOT NULL;
CREATE INDEX delivery_about ON delivery (about, delivery_id);
CREATE INDEX delivery_ended ON delivery (ended_at) WHERE ended_at IS NOT NULL;

-- Callers of the server.

-- Tokens of programs, sessions of browsers, and codes that a browser turns into a session once. The secret itself is
-- nowhere: prefix finds the row, digest is its SHA-256. namespace is '*' for all. ended_at: revoked, left, or used up.
-- opened_by is the token that signed a browser in: its session ends with the token. NULL after a code.
CREATE TABLE token (
    token_id     {text} PRIMARY KEY,
    kind         {text} NOT NULL CHECK (kind IN ('token', 'session', 'code')),
    name         {text} NOT NULL,
    prefix       {text} NOT NULL,
    digest       {text} NOT NULL,
    role         {text} NOT NULL CHECK (role IN ('viewer', 'operator', 'developer', 'admin')),
    namespace    {text} NOT NULL,
    created_at   BIGINT NOT NULL,
    created_by   {text} NOT NULL,
    opened_by    {text},
    expires_at   BIGINT,
    last_used_at BIGINT,
    ended_at     BIGINT
);
CREATE UNIQUE INDEX token_prefix ON token (prefix);
CREATE UNIQUE INDEX token_name ON token (name) WHERE kind = 'token' AND ended_at IS NULL;
CREATE INDEX token_listed ON token (name, token_id) WHERE kind = 'token';
CREATE INDEX token_expiring ON token (expires_at) WHERE kind <> 'token';

-- Changes that callers of the server asked for with a key of their own, for a day. answer is JSON; NULL while the change
-- is under way, or after a crash within it. attempt fences an earlier try of the same request.
CREATE TABLE request_key (
    caller      {text} NOT NULL,
    request_key {text} NOT NULL,
    digest      {text} NOT NULL,
    attempt     BIGINT NOT NULL,
    part        {text},
    answer      {text},
    at          BIGINT NOT NULL,
    PRIMARY KEY (caller, request_key)
) {clustered};
CREATE INDEX request_key_at ON request_key (at);
