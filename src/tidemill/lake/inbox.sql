-- name: select_unknown
-- Of the files listed, those whose content nobody has recorded, or only as skipped: one look-up by key each. The
-- second column says how far another content of the same name has come: 2 claimed, 1 processed or set aside, else 0.
SELECT listed.place,
       coalesce((SELECT max(CASE other.status WHEN 'IN_PROGRESS' THEN 2 WHEN 'SUCCESS' THEN 1 WHEN 'QUARANTINED' THEN 1
                                              ELSE 0 END)
                   FROM inbox_file AS other
                  WHERE other.dataset_id = :dataset_id AND other.name = listed.name
                    AND other.content_version <> listed.content_version), 0),
       CASE WHEN file.name IS NULL THEN 0 ELSE 1 END
  FROM {rows:listed(place bigint, name text, content_version text)} AS listed
  LEFT JOIN inbox_file AS file
    ON file.dataset_id = :dataset_id AND file.name = listed.name AND file.content_version = listed.content_version
 WHERE file.name IS NULL OR file.status = 'SKIPPED'
 ORDER BY listed.place

-- name: publish_found
-- Counts only what the next statement will record, so that of two who discover the same file at once one announces it.
-- No row for nothing.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'files', :event_key,
       '{"count": ' || CAST(count(*) AS TEXT) || ', "bytes": ' || CAST(sum(CAST(found.bytes AS BIGINT)) AS TEXT) || '}'
  FROM {rows:found(name text, content_version text, bytes bigint, status text)} AS found
 WHERE found.status = 'NEW'
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS file
                    WHERE file.dataset_id = :dataset_id AND file.name = found.name
                      AND file.content_version = found.content_version AND file.status <> 'SKIPPED')
HAVING count(*) > 0

-- name: insert_found
-- A content that was skipped (another one had replaced it, or it was gone) and is there again is new again.
INSERT INTO inbox_file
       (dataset_id, name, content_version, etag, bytes, modified_at, first_seen, status, error)
SELECT :dataset_id, found.name, found.content_version, found.etag, found.bytes, found.modified_at, tidemill_now(),
       found.status, found.error
  FROM {rows:found(name text, content_version text, etag text, bytes bigint, modified_at bigint, status text, error text)} AS found
 WHERE true
    ON CONFLICT (dataset_id, name, content_version) DO UPDATE
   SET status = excluded.status, error = excluded.error, failures = 0, not_before = 0, alone = 0
 WHERE inbox_file.status = 'SKIPPED'

-- name: supersede_found
-- A content that waits still and is no longer there: it must never be delivered.
-- Here and below, where a list of files is changed, each is looked up by its key. Given a chance (a state or a run
-- that an index could serve, or that PostgreSQL without statistics takes for rare), both databases start from the
-- files in that state and read the whole list for each: 10,000 took minutes. coalesce() hides it from them.
UPDATE inbox_file
   SET status = 'SKIPPED', not_before = 0, run_id = NULL, epoch = NULL,
       error = 'written again before it was processed'
  FROM {rows:found(dataset_id text, name text, content_version text)} AS found
 WHERE inbox_file.dataset_id = found.dataset_id AND inbox_file.name = found.name
   AND inbox_file.content_version <> found.content_version AND coalesce(inbox_file.status IN ('NEW', 'ERROR'), FALSE)

-- name: select_due_listings
SELECT dataset_id, next_listing_at FROM inbox_marker WHERE next_listing_at <= tidemill_now()
 ORDER BY next_listing_at LIMIT :limit

-- name: take_listing
-- quiet
-- Whoever moves the time lists the folder. Nobody has to be woken by a time that lies ahead.
UPDATE inbox_marker SET next_listing_at = tidemill_now() + :interval
 WHERE dataset_id = :dataset_id AND next_listing_at = :next_listing_at

-- name: insert_marker
INSERT INTO inbox_marker (dataset_id, next_listing_at, attempts, retry_after)
VALUES (:dataset_id, tidemill_now(), :attempts, :retry_after)
    ON CONFLICT (dataset_id) DO UPDATE
   SET next_listing_at = excluded.next_listing_at, attempts = excluded.attempts, retry_after = excluded.retry_after

-- name: lock_owner
-- A fenced attempt must not claim: its run may have ended, and nobody would give the files back.
SELECT 1 FROM tx
 WHERE write_pointer = :write_pointer AND state = 'in_progress' AND run_id = :run_id AND epoch = :epoch {for_share}

-- name: select_claims
SELECT dataset_id, name, content_version, etag, bytes, modified_at, failures, alone FROM inbox_file
 WHERE run_id = :run_id AND status = 'IN_PROGRESS'
 ORDER BY modified_at, dataset_id, name

-- name: find_worst_partition
-- Of the partitions that the run holds the most failures; NULL when it holds none.
SELECT max(failures) FROM consumer_work WHERE run_id = :run_id AND state = 'in_progress'

-- name: select_claimed_names
-- With the location, so that an error that names a path can be told from it.
SELECT dataset.location, file.dataset_id, file.name, file.content_version, file.etag, file.bytes, file.modified_at,
       file.failures, file.alone
  FROM inbox_file AS file JOIN dataset ON dataset.dataset_id = file.dataset_id
 WHERE file.run_id = :run_id AND file.status = 'IN_PROGRESS'

-- name: select_claimable
-- In the order of the index, so that the cost is what is taken, and what is skipped because its time has not come. A
-- content waits while an earlier one of its name is being processed.
SELECT dataset_id, name, content_version, etag, bytes, modified_at, failures, alone FROM inbox_file
 WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') AND not_before <= tidemill_now()
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS other
                    WHERE other.dataset_id = inbox_file.dataset_id AND other.name = inbox_file.name
                      AND other.status = 'IN_PROGRESS')
 ORDER BY modified_at, name LIMIT :limit {skip_locked}

-- name: claim
UPDATE inbox_file SET status = 'IN_PROGRESS', run_id = :run_id, epoch = :epoch, not_before = 0
  FROM {rows:files(dataset_id text, name text, content_version text)} AS file
 WHERE inbox_file.dataset_id = file.dataset_id AND inbox_file.name = file.name
   AND inbox_file.content_version = file.content_version AND coalesce(inbox_file.status IN ('NEW', 'ERROR'), FALSE)

-- name: put_back
-- All but those kept. A content that was replaced meanwhile is never delivered.
UPDATE inbox_file
   SET status = CASE WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED' ELSE 'NEW' END,
       run_id = NULL, epoch = NULL
 WHERE run_id = :run_id AND status = 'IN_PROGRESS'
   AND (dataset_id, name, content_version) NOT IN (SELECT file.dataset_id, file.name, file.content_version
          FROM {rows:files(dataset_id text, name text, content_version text)} AS file)

-- name: guard_claims
-- Every file that the run has claimed is closed, and nothing else: a claim left open would stay so for ever.
SELECT tidemill_refuse('claims_lost', CAST(:run_id AS TEXT), CAST(CAST(:files AS BIGINT) AS TEXT),
                       CAST(held.files AS TEXT))
  FROM (SELECT count(*) AS files FROM inbox_file WHERE run_id = :run_id AND status = 'IN_PROGRESS') AS held
 WHERE held.files <> :files
    OR :files <> (SELECT count(*)
                    FROM {rows:outcomes(dataset_id text, name text, content_version text)} AS outcome
                    JOIN inbox_file ON inbox_file.dataset_id = outcome.dataset_id AND inbox_file.name = outcome.name
                     AND inbox_file.content_version = outcome.content_version
                   WHERE coalesce(inbox_file.status = 'IN_PROGRESS' AND inbox_file.run_id = :run_id
                                  AND inbox_file.epoch = :epoch, FALSE))

-- name: close_files
-- What is to be tried again, and was replaced meanwhile, is never delivered: of one name one content waits.
UPDATE inbox_file
   SET status = CASE
           WHEN outcome.status = 'ERROR'
            AND EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
           ELSE outcome.status END, error = outcome.error, row_count = outcome.row_count,
       failures = outcome.failures, alone = 0,
       not_before = CASE WHEN outcome.retry_after IS NULL THEN 0 ELSE tidemill_now() + outcome.retry_after END
  FROM {rows:outcomes(dataset_id text, name text, content_version text, status text, error text, row_count bigint, failures bigint, retry_after bigint)} AS outcome
 WHERE inbox_file.dataset_id = outcome.dataset_id AND inbox_file.name = outcome.name
   AND inbox_file.content_version = outcome.content_version
   AND coalesce(inbox_file.status = 'IN_PROGRESS' AND inbox_file.run_id = :run_id AND inbox_file.epoch = :epoch, FALSE)

-- name: insert_inputs
-- Only what this commit processed: a file set aside or skipped was not its input.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, content_version)
SELECT CAST(:run_id AS TEXT), outcome.dataset_id, 0, outcome.name, outcome.content_version
  FROM {rows:outcomes(dataset_id text, name text, content_version text, status text)} AS outcome
 WHERE outcome.status = 'SUCCESS'

-- name: restamp
UPDATE inbox_file SET epoch = :epoch WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch < :epoch

-- name: quarantine_alone
-- rank: consumer
-- Only what failed alone: beside other files, or partitions, it may be innocent. So it has to be seen before the run's
-- partitions are given back; the row is the run's own, and whoever waits for it holds no consumer.
UPDATE inbox_file SET status = 'QUARANTINED', failures = failures + 1, error = :error
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch
   AND failures + 1 >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
   AND 1 = (SELECT count(*) FROM inbox_file AS other WHERE other.run_id = :run_id AND other.status = 'IN_PROGRESS')
   AND NOT EXISTS (SELECT 1 FROM consumer_work AS work WHERE work.run_id = :run_id AND work.state = 'in_progress')
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS newer
                    WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                      AND newer.content_version <> inbox_file.content_version
                      AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE))

-- name: count_failure
-- The attempt failed and another follows: all its files are suspects.
UPDATE inbox_file SET failures = failures + 1, error = :error
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch

-- name: set_aside
-- The error named this file: it leaves the run, is tried again by itself, and ends in quarantine.
UPDATE inbox_file
   SET failures = failures + 1, error = :error, alone = 1,
       status = CASE WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
                     WHEN failures + 1 >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                     THEN 'QUARANTINED' ELSE 'ERROR' END,
       not_before = CASE WHEN failures + 1 >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                         THEN 0 ELSE tidemill_now() + (SELECT retry_after FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                                   * CASE WHEN failures < 10 THEN 1 << CAST(failures AS INTEGER) ELSE 1024 END END
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch
   AND dataset_id = :dataset_id AND name = :name

-- name: release
-- What the run still holds when it ends without success. A content that was replaced meanwhile is never delivered.
-- The wait doubles with each failure, up to an hour.
-- Claims may still carry the epoch of an earlier attempt, when the last one died before it began.
UPDATE inbox_file
   SET status = CASE
           WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
           WHEN :failed = 0 THEN 'NEW' ELSE 'ERROR' END,
       failures = failures + :failed,
       error = CASE WHEN :failed = 1 THEN :error ELSE error END,
       not_before = CASE WHEN :failed = 0 THEN 0
                         WHEN failures > 20 THEN tidemill_now() + 3600000
                         WHEN CAST(:backoff AS BIGINT) * (CAST(1 AS BIGINT) << CAST(failures AS INTEGER)) > 3600000
                         THEN tidemill_now() + 3600000
                         ELSE tidemill_now() + :backoff * (CAST(1 AS BIGINT) << CAST(failures AS INTEGER)) END
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch

-- name: publish_backlog
-- rank: inbox_file
-- After the statements that free files in the same commit. One message for each inbox that has files to claim now.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}) + ranked.place,
       tidemill_now(), 'backlog', 'backlog:' || ranked.namespace || '.' || ranked.name, '{}'
  FROM (SELECT dataset.namespace, dataset.name, row_number() OVER (ORDER BY dataset.dataset_id) - 1 AS place
          FROM dataset
         WHERE dataset.dataset_id IN ({texts:dataset_ids}) AND dataset.dropped_at IS NULL
           AND EXISTS (SELECT 1 FROM inbox_file AS file {indexed_by:inbox_file_open}
                        WHERE file.dataset_id = dataset.dataset_id AND file.status IN ('NEW', 'ERROR')
                          AND file.not_before <= tidemill_now()
                          AND NOT EXISTS (SELECT 1 FROM inbox_file AS other
                                           WHERE other.dataset_id = file.dataset_id AND other.name = file.name
                                             AND other.status = 'IN_PROGRESS'))) AS ranked

-- name: put_off
-- One file is enough to have the keeper announce the inbox at its time; the others are there for whoever comes. As long
-- again as the file has waited, so that the waits double without anybody counting.
UPDATE inbox_file
   SET not_before = tidemill_now() + CASE WHEN tidemill_now() - first_seen > 3600000 THEN 3600000
                                          WHEN tidemill_now() - first_seen > :wait THEN tidemill_now() - first_seen
                                          ELSE :wait END
 WHERE (dataset_id, name, content_version) =
       (SELECT file.dataset_id, file.name, file.content_version FROM inbox_file AS file {indexed_by:inbox_file_open}
         WHERE file.dataset_id = :dataset_id AND file.status IN ('NEW', 'ERROR') AND file.not_before <= tidemill_now()
           AND NOT EXISTS (SELECT 1 FROM inbox_file AS other
                            WHERE other.dataset_id = file.dataset_id AND other.name = file.name
                              AND other.status = 'IN_PROGRESS')
         ORDER BY file.modified_at, file.name LIMIT 1)

-- name: select_due_retries
SELECT DISTINCT dataset_id FROM inbox_file
 WHERE status IN ('NEW', 'ERROR') AND not_before > 0 AND not_before <= tidemill_now()

-- name: select_next_due
SELECT min(next_listing_at) FROM inbox_marker
 UNION ALL
SELECT min(not_before) FROM inbox_file WHERE status IN ('NEW', 'ERROR') AND not_before > 0

-- name: mark_retries
-- Due retry times are announced once: without a time a file is like any other that waits.
UPDATE inbox_file {indexed_by:inbox_file_due} SET not_before = 0
 WHERE status IN ('NEW', 'ERROR') AND not_before > 0 AND not_before <= tidemill_now()
   AND dataset_id IN ({texts:dataset_ids})

-- name: list_files
SELECT name, content_version, bytes, modified_at, first_seen, status, failures, not_before, error, run_id, row_count
  FROM inbox_file
 WHERE dataset_id = :dataset_id AND name > :after AND (:state = '' OR status = :state)
 ORDER BY name, content_version LIMIT :limit

-- name: list_versions
SELECT name, content_version, bytes, modified_at, first_seen, status, failures, not_before, error, run_id, row_count
  FROM inbox_file
 WHERE dataset_id = :dataset_id AND name = :name AND content_version > :content_version
   AND (:state = '' OR status = :state)
 ORDER BY content_version

-- name: count_files
SELECT status, count(*), coalesce(sum(bytes), 0) FROM inbox_file WHERE dataset_id = :dataset_id
 GROUP BY status ORDER BY status
