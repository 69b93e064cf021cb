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

-- name: guard_some
-- Every file that is closed is held by this attempt.
SELECT tidemill_refuse('claims_lost', CAST(:run_id AS TEXT), CAST(CAST(:files AS BIGINT) AS TEXT),
                       CAST(held.files AS TEXT))
  FROM (SELECT count(*) AS files
          FROM {rows:outcomes(dataset_id text, name text, content_version text)} AS outcome
          JOIN inbox_file ON inbox_file.dataset_id = outcome.dataset_id AND inbox_file.name = outcome.name
           AND inbox_file.content_version = outcome.content_version
         WHERE coalesce(inbox_file.status = 'IN_PROGRESS' AND inbox_file.run_id = :run_id
                        AND inbox_file.epoch = :epoch, FALSE)) AS held
 WHERE held.files <> :files

-- name: close_files
-- locks: inbox_file
-- wakes: time
-- What is to be tried again, and was replaced meanwhile, is never delivered: of one name one content waits. What
-- succeeded is to leave as its inbox says: the intent, on which the janitor acts.
UPDATE inbox_file
   SET status = CASE
           WHEN outcome.status IN ('ERROR', 'NEW')
            AND EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
           ELSE outcome.status END, error = outcome.error, row_count = outcome.row_count,
       etag = coalesce(outcome.etag, inbox_file.etag), checksum = coalesce(outcome.checksum, inbox_file.checksum),
       failures = outcome.failures, alone = 0,
       not_before = CASE WHEN outcome.retry_after IS NULL THEN 0 ELSE tidemill_now() + outcome.retry_after END,
       afterwards = CASE WHEN outcome.status = 'SUCCESS' THEN marker.afterwards END,
       archive = CASE WHEN outcome.status = 'SUCCESS' THEN marker.archive END,
       leave_at = CASE WHEN outcome.status = 'SUCCESS' AND marker.afterwards IS NOT NULL THEN tidemill_now() END
  FROM {rows:outcomes(dataset_id text, name text, content_version text, status text, error text, row_count bigint, failures bigint, retry_after bigint, etag text, checksum text)} AS outcome
  LEFT JOIN inbox_marker AS marker ON marker.dataset_id = outcome.dataset_id
 WHERE inbox_file.dataset_id = outcome.dataset_id AND inbox_file.name = outcome.name
   AND inbox_file.content_version = outcome.content_version
   AND coalesce(inbox_file.status = 'IN_PROGRESS' AND inbox_file.run_id = :run_id AND inbox_file.epoch = :epoch, FALSE)

-- name: note_contents
-- locks: inbox_file
UPDATE inbox_file SET etag = content.etag, checksum = coalesce(content.checksum, inbox_file.checksum)
  FROM {rows:contents(dataset_id text, name text, content_version text, etag text, checksum text)} AS content
 WHERE inbox_file.dataset_id = content.dataset_id AND inbox_file.name = content.name
   AND inbox_file.content_version = content.content_version
   AND coalesce(inbox_file.status = 'IN_PROGRESS' AND inbox_file.run_id = :run_id AND inbox_file.epoch = :epoch, FALSE)

-- name: note_skipped
-- quiet
-- Listings that remember these files are wrong from here on: a file that was away for a moment is there again.
UPDATE inbox_marker SET superseded = superseded + 1 WHERE dataset_id IN ({texts:dataset_ids})

-- name: insert_inputs
-- Only what this commit processed: a quarantined or skipped file was not its input.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, content_version)
SELECT CAST(:run_id AS TEXT), outcome.dataset_id, 0, outcome.name, outcome.content_version
  FROM {rows:outcomes(dataset_id text, name text, content_version text, status text)} AS outcome
 WHERE outcome.status = 'SUCCESS'

-- name: quarantine
-- locks: inbox_file
-- After the failure was counted, of a run that held nothing else.
UPDATE inbox_file SET status = 'QUARANTINED'
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch
   AND failures >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS newer
                    WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                      AND newer.content_version <> inbox_file.content_version
                      AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE))

-- name: count_failure
-- locks: inbox_file
-- The attempt failed and another follows: all its files are suspects.
UPDATE inbox_file SET failures = failures + 1, error = :error
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch

-- name: fail_blamed
-- locks: inbox_file
-- The files that are blamed, each with its own reason, leave the run, are tried again, and end in quarantine. The keeper
-- announces them, since the run may go on to another attempt; so the time of each lies ahead, by a millisecond at least.
UPDATE inbox_file
   SET failures = failures + 1, error = blamed.error, alone = blamed.alone,
       status = CASE WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
                     WHEN failures + 1 >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                     THEN 'QUARANTINED' ELSE 'ERROR' END,
       not_before = CASE WHEN failures + 1 >= (SELECT attempts FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                         THEN 0 ELSE tidemill_now() + (SELECT CASE WHEN retry_after = 0 THEN 1 ELSE retry_after END
                                                   FROM inbox_marker AS inbox WHERE inbox.dataset_id = inbox_file.dataset_id)
                                   * CASE WHEN failures < 10 THEN 1 << CAST(failures AS INTEGER) ELSE 1024 END END
  FROM {rows:blamed(dataset_id text, name text, error text, alone bigint)} AS blamed
 WHERE inbox_file.dataset_id = blamed.dataset_id AND inbox_file.name = blamed.name
   AND coalesce(inbox_file.run_id = :run_id AND inbox_file.status = 'IN_PROGRESS' AND inbox_file.epoch <= :epoch, FALSE)

-- name: return_files
-- locks: inbox_file
-- What the run still holds when it ends without success. A content that was replaced meanwhile is never delivered.
-- The wait doubles with each failure, up to an hour. Without a wait there is no time: the end of the run announces the
-- files, and the keeper would announce a time again.
-- Claims may still carry the epoch of an earlier attempt, when the last one died before it began.
UPDATE inbox_file
   SET status = CASE
           WHEN EXISTS (SELECT 1 FROM inbox_file AS newer
                         WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                           AND newer.content_version <> inbox_file.content_version
                           AND coalesce(newer.status IN ('NEW', 'ERROR'), FALSE)) THEN 'SKIPPED'
           WHEN :failed = 0 THEN 'NEW' ELSE 'ERROR' END,
       not_before = CASE WHEN :failed = 0 OR :backoff = 0 THEN 0
                         WHEN failures > 21 THEN tidemill_now() + 3600000
                         WHEN CAST(:backoff AS BIGINT) * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) > 3600000
                         THEN tidemill_now() + 3600000
                         ELSE tidemill_now() + :backoff * (CAST(1 AS BIGINT) << CAST(failures - 1 AS INTEGER)) END
 WHERE run_id = :run_id AND status = 'IN_PROGRESS' AND epoch <= :epoch

-- name: publish_backlog
-- locks: nothing, at inbox_file
-- After the statements that free files in the same commit. One message for each inbox that has files to claim now.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}) + ranked.place,
       tidemill_now(), 'backlog', 'backlog:' || ranked.namespace || '.' || ranked.name,
       '{' || ltrim(CAST(:heard_by AS TEXT), ',') || '}'
  FROM (SELECT dataset.namespace, dataset.name, row_number() OVER (ORDER BY dataset.dataset_id) - 1 AS place
          FROM dataset
         WHERE dataset.dataset_id IN ({texts:ids}) AND dataset.dropped_at IS NULL
           AND EXISTS (SELECT 1 FROM inbox_file AS file {indexed_by:inbox_file_open}
                        WHERE file.dataset_id = dataset.dataset_id AND file.status IN ('NEW', 'ERROR')
                          AND file.not_before <= tidemill_now()
                          AND NOT EXISTS (SELECT 1 FROM inbox_file AS other
                                           WHERE other.dataset_id = file.dataset_id AND other.name = file.name
                                             AND other.status = 'IN_PROGRESS'))) AS ranked

-- name: postpone
-- locks: inbox_file
-- wakes: time
-- One file with a time is enough: the keeper then announces the inbox. A take may claim the other files at once. The
-- wait is as long as the file has waited so far. So the waits double without a counter.
UPDATE inbox_file
   SET not_before = tidemill_now() + CASE WHEN tidemill_now() - first_seen > 3600000 THEN 3600000
                                          WHEN tidemill_now() - first_seen > :wait THEN tidemill_now() - first_seen
                                          ELSE :wait END
 WHERE (dataset_id, name, content_version) =
       (SELECT file.dataset_id, file.name, file.content_version FROM inbox_file AS file {indexed_by:inbox_file_open}
         WHERE file.dataset_id = :id AND file.status IN ('NEW', 'ERROR') AND file.not_before <= tidemill_now()
           AND NOT EXISTS (SELECT 1 FROM inbox_file AS other
                            WHERE other.dataset_id = file.dataset_id AND other.name = file.name
                              AND other.status = 'IN_PROGRESS')
         ORDER BY file.modified_at, file.name LIMIT 1)

-- name: find_due
-- gives: dataset_id
SELECT DISTINCT dataset_id FROM inbox_file
 WHERE status IN ('NEW', 'ERROR') AND not_before > 0 AND not_before <= tidemill_now()

-- name: clear_due
-- locks: inbox_file
-- Due retry times are announced once: without a time a file is like any other that waits.
UPDATE inbox_file {indexed_by:inbox_file_due} SET not_before = 0
 WHERE status IN ('NEW', 'ERROR') AND not_before > 0 AND not_before <= tidemill_now()
   AND dataset_id IN ({texts:ids})

-- name: find_next_due
-- gives: not_before
SELECT min(not_before) AS not_before FROM inbox_file WHERE status IN ('NEW', 'ERROR') AND not_before > 0

-- name: retry_named
-- locks: inbox_file
-- With a time that has come the keeper announces them, once.
UPDATE inbox_file SET not_before = tidemill_now()
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND coalesce(status = 'ERROR', FALSE)

-- name: retry_all
-- locks: inbox_file
UPDATE inbox_file {indexed_by:inbox_file_open} SET not_before = tidemill_now()
 WHERE dataset_id = :dataset_id AND status IN ('NEW', 'ERROR') AND status = 'ERROR'

-- name: ignore_quarantined
-- locks: inbox_file
UPDATE inbox_file SET status = 'IGNORED'
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND coalesce(status = 'QUARANTINED', FALSE)

-- name: deliver_alone
-- locks: inbox_file
-- Files in a state of which a person takes them back, unless another content of the name is under way.
UPDATE inbox_file
   SET status = 'NEW', failures = 0, alone = 1, error = NULL, run_id = NULL, epoch = NULL, not_before = tidemill_now()
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND coalesce(status = :status, FALSE)
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS newer
                    WHERE newer.dataset_id = inbox_file.dataset_id AND newer.name = inbox_file.name
                      AND newer.content_version <> inbox_file.content_version
                      AND coalesce(newer.status IN ('NEW', 'ERROR', 'IN_PROGRESS'), FALSE))
