-- name: make_series
CREATE TEMP TABLE series AS
WITH RECURSIVE counted(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM counted WHERE i < 299999)
SELECT i FROM counted

-- name: fill_datasets
-- `wide`: 100,000 partitions, each overwritten twice. `deep`: 100 partitions, each overwritten 600 times. `mirror`: a
-- snapshot of 60,000 versions, of which 100 are kept.
INSERT INTO dataset (dataset_id, namespace, name, kind, location, spec, created_at, app)
SELECT 'wide', 'default', 'wide', 'fileset', '/data/wide', '{}', :now, NULL
 UNION ALL SELECT 'deep', 'default', 'deep', 'fileset', '/data/deep', '{}', :now, NULL
 UNION ALL SELECT 'mirror', 'default', 'mirror', 'snapshot', '/data/mirror', '{}', :now, NULL
 UNION ALL SELECT 'landing', 'default', 'landing', 'inbox', '/data/landing', '{}', :now, NULL
 UNION ALL SELECT 'small_' || i, 'default', 'small_' || i, 'fileset', '/data/small_' || i, '{}', :now, 'app_' || (i % 20)
             FROM series WHERE i < 200

-- name: fill_audit
INSERT INTO audit (audit_id, at, actor, action, subject, detail)
SELECT 'audit_' || (100000000 + i), :now, 'ann@desk', 'run.kill', 'run_' || (i % 3000), '{}' FROM series

-- name: fill_schemas
INSERT INTO dataset_schema (dataset_id, schema_id, schema, commit_seq, run_id)
SELECT dataset_id, 's', 'a int', 2, 'run_0' FROM dataset

-- name: fill_tx
-- Each commits after the next ten have begun; one in fifty was aborted; the newest fifty are open.
INSERT INTO tx (write_pointer, state, commit_seq, run_id, epoch, began_at, ended_at)
SELECT 2 * i + 1, 'committed', 2 * i + 22, 'run_' || i, 1, :now - (300000 - i) * 1000, :now - (300000 - i) * 1000 + 50
  FROM series
 UNION ALL
SELECT 100 * i + 100, 'aborted', NULL, 'lost_' || i, 1, :now - 1000000, :now - 900000 FROM series WHERE i < 6000
 UNION ALL
SELECT 600100 + i, 'in_progress', NULL, 'live_' || i, 1, :now, NULL FROM series WHERE i < 50

-- name: fill_in_progress
-- Of `mirror` each tick of the tests is open.
INSERT INTO in_progress (dataset_id, write_pointer, from_time, to_time)
SELECT 'wide', 600100 + i, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT) FROM series WHERE i < 50
 UNION ALL SELECT 'deep', 600100 + i, 0, 4611686018427387904 FROM series WHERE i < 50
 UNION ALL SELECT 'deep', 100 * i + 100, NULL, NULL FROM series WHERE i < 20
 UNION ALL SELECT 'mirror', 600100 + i, NULL, NULL FROM series WHERE i < 50
 UNION ALL SELECT 'mirror', 699990 + i, NULL, NULL FROM series WHERE i < 700
 UNION ALL SELECT 'mirror', 799990 + i, NULL, NULL FROM series WHERE i < 700

-- name: fill_watermark
-- Hours since 1970; of `wide` 34 years, moved by each; of `deep` by each tick of the tests. `deep` waits, and is held; `small_1` waits for several.
INSERT INTO watermark (dataset_id, declared, gap, gap_wait, row_lag, max_ahead, includes, value, target, next_time, next_check_at)
SELECT 'wide', 'declared', 'skip', NULL, 0, 3600000000, 0, 297000 * 3600000000, 298000 * 3600000000, NULL, 1
  FROM series WHERE i = 0
 UNION ALL SELECT 'deep', 'declared', 'wait', 3600000, 0, 3600000000, 0, 100 * 3600000000, 200 * 3600000000,
       49900 * 3600000000, NULL
  FROM series WHERE i = 0
 UNION ALL SELECT 'small_' || (i + 1), 'declared', 'skip', NULL, 0, 3600000000, 0, 1, 1, NULL, NULL
  FROM series WHERE i < 150

-- name: fill_watermark_move
INSERT INTO watermark_move (dataset_id, commit_seq, value, previous, cause, at)
SELECT 'wide', 2 * i + 22, (i + 1) * 3600000000, i * 3600000000, 'run_' || i, :now FROM series WHERE i < 297000
 UNION ALL SELECT 'deep', 699990 + i, (i + 1) * 3600000000, i * 3600000000, 'run_' || i, :now FROM series WHERE i < 5000
 UNION ALL SELECT 'deep', 799990 + i, (i + 1) * 3600000000, i * 3600000000, 'run_' || i, :now FROM series WHERE i < 5000

-- name: fill_time_slot
INSERT INTO time_slot (dataset_id, slot_time, begins_at, ends_at, next_time, complete)
SELECT 'wide', i * 3600000000, i * 3600000000,
       CASE WHEN i = 50000 THEN 2305843009213693952 ELSE (i + 1) * 3600000000 END, (i + 1) * 3600000000, 1
  FROM series WHERE i < 299000
 UNION ALL SELECT 'deep', i * 3600000000, i * 3600000000, (i + 1) * 3600000000, (i + 1) * 3600000000,
                  CASE WHEN i < 49990 THEN 1 ELSE 0 END FROM series WHERE i < 50000
 UNION ALL SELECT 'small_1', 2 * i * 3600000000, i, i, (2 * i + 1) * 3600000000, 0 FROM series WHERE i < 50

-- name: fill_window_program
INSERT INTO window_program (program_id, name, definition, computed, seen, revision, retry_at)
SELECT 'program_' || i, 'default.app.p' || i, '{}', CASE WHEN i < 299 THEN 297000 ELSE 200 END * 3600000000, 599900, 0,
       CASE WHEN i < 10 THEN 1 ELSE NULL END
  FROM series WHERE i < 300

-- name: fill_window_input
INSERT INTO window_input (program_id, dataset_id, late)
SELECT 'program_' || i, CASE WHEN i < 3 THEN 'wide' ELSE 'small_' || (i % 200) END, 'recompute'
  FROM series WHERE i < 300
 UNION ALL SELECT 'program_299', 'wide', 'recompute' UNION ALL SELECT 'program_299', 'deep', 'recompute'

-- name: fill_window_output
INSERT INTO window_output (program_id, dataset_id, time_value, start_value)
SELECT 'program_' || i, CASE WHEN i < 2 THEN 'deep' ELSE 'out_' || i END, 1000000000000000000, i
  FROM series WHERE i < 20000

-- name: fill_window_change
INSERT INTO window_change (dataset_id, commit_seq, begins, ends)
SELECT 'deep', 599950 + i / 50, i, i + 1 FROM series WHERE i < 2000
 UNION ALL SELECT 'wide', 2 * i + 599800, i, i + 1 FROM series

-- name: fill_idle_timeout
UPDATE watermark SET idle_timeout = 1000000000000 WHERE dataset_id = 'deep'

-- name: fill_window_result
INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale)
SELECT 'program_1', (i + 1) * 3600000000, i * 3600000000, 2 * i + 1, CASE WHEN i < 50 THEN 1 ELSE 0 END FROM series
 UNION ALL
SELECT 'program_2', (i + 1) * 3600000000, i * 3600000000, 2 * i + 1, 0 FROM series WHERE i < 100

-- name: fill_left_out
INSERT INTO left_out (program_id, dataset_id, partition_key, slot_time, late_rows, counted_at)
SELECT 'program_' || (i % 300), 'wide', 'k' || i, i * 3600000000, CASE WHEN i < 30000 THEN 0 ELSE 1 END, i FROM series

-- name: fill_outside_time
INSERT INTO outside_time (program_id, dataset_id, partition_key, stretches, unread_since)
SELECT 'program_' || (i % 300), 'wide', 'k' || i, '[[1, 2]]', CASE WHEN i < 3000 THEN 2 * i END FROM series WHERE i < 60000

-- name: fill_window_failure
INSERT INTO window_failure (program_id, window_end, window_start, reason, partitions, since, tried_at)
SELECT 'program_' || (i % 300), (1001 + i / 300) * 3600000000, (1000 + i / 300) * 3600000000, 'bad', '[]', i, i
  FROM series WHERE i < 3000

-- name: fill_slot_member
INSERT INTO slot_member (dataset_id, slot_time, member)
SELECT 'wide', i * 3600000000, 'eu' FROM series
 UNION ALL SELECT 'small_1', 2 * i * 3600000000, 'eu' FROM series WHERE i < 50

-- name: fill_slot_wait
INSERT INTO slot_wait (dataset_id, slot_time, partition_key, marked, due_at)
SELECT 'wide', i * 3600000000, 'k' || i, 1, :now + 3600000 + i FROM series WHERE i < 30000
 UNION ALL SELECT 'small_1', 2 * i * 3600000000, 'k' || i, i % 2, CASE WHEN i < 10 THEN 1000 ELSE :now + 3600000 END
  FROM series WHERE i < 40

-- name: fill_parked_partition
INSERT INTO parked_partition (dataset_id, partition_key, since)
SELECT 'wide', 'k' || i, i FROM series WHERE i < 30000
 UNION ALL SELECT 'small_1', 'k' || i, i FROM series WHERE i < 20

-- name: fill_partition_change
-- Of `deep`, every other change that was replaced has expired.
INSERT INTO partition_change
       (dataset_id, write_pointer, partition_key, op, commit_seq, superseded_seq, delivers, location, manifest, files,
        bytes, row_count, schema_id, run_id, at, expired_at, partition_time)
SELECT 'wide', 2 * i + 1, 'k' || (i % 100000), 'overwrite', 2 * i + 22,
       CASE WHEN i < 200000 THEN 2 * (i + 100000) + 22 END, 1, 'tx-' || (2 * i + 1), CAST('manifest' AS {blob}), 1,
       1000, 100, 's', 'run_' || i, :now - (300000 - i) * 1000, NULL, (i % 100000) * 3600000000
  FROM series
 UNION ALL
SELECT 'deep', 2 * i + 1, 'k' || (i / 5 % 100), 'overwrite', 2 * i + 22,
       CASE WHEN i < 299500 THEN 2 * (i + 500) + 22 END, 1, 'tx-' || (2 * i + 1), CAST('manifest' AS {blob}), 1,
       1000, 100, 's', 'run_' || i, :now - (300000 - i) * 1000, CASE WHEN i < 299000 AND i % 10 = 0 THEN 1 END, NULL
  FROM series WHERE i % 5 = 0
 UNION ALL
SELECT 'mirror', 2 * i + 1, '', 'overwrite', 2 * i + 22, CASE WHEN i < 299995 THEN 2 * (i + 5) + 22 END, 0,
       'tx-' || (2 * i + 1), CAST('manifest' AS {blob}), 1, 1000, 100, 's', 'run_' || i, :now - (300000 - i) * 1000,
       CASE WHEN i < 299500 THEN 1 END, NULL
  FROM series WHERE i % 5 = 0
 UNION ALL
SELECT 'small_' || (i / 150 % 200), 2 * i + 1, 'k' || i, 'append', 2 * i + 22, NULL, 1, 'tx-' || (2 * i + 1),
       CAST('manifest' AS {blob}), 1, 1000, 100, 's', 'run_' || i, :now - (300000 - i) * 1000, NULL, NULL
  FROM series WHERE i % 15 = 0
 UNION ALL
SELECT 'small_0', 2 * i + 1, 'd' || i, 'drop', 2 * i + 22, 2 * i + 22, 0, 'tx-' || (2 * i + 1),
       CAST('manifest' AS {blob}), 0, 0, 0, NULL, 'run_' || i, :now - (300000 - i) * 1000, NULL, NULL
  FROM series WHERE i < 100

-- name: fill_fileset_total
INSERT INTO fileset_total (dataset_id, partitions, files, bytes, row_count, merged)
SELECT 'ds_' || i, 1, 1, 1, 1, 1 FROM series
 UNION ALL SELECT dataset_id, 100, 100, 100000, 10000, 0 FROM dataset

-- name: fill_compaction
-- Of `wide` as its changes; of `deep` a few keys with a long past, of which every other compaction has expired.
INSERT INTO compaction
       (dataset_id, write_pointer, partition_key, commit_seq, superseded_seq, location, manifest, files, bytes, row_count,
        run_id, at, expired_at)
SELECT 'wide', 2 * i + 1, 'k' || (i % 100000), 2 * i + 22, CASE WHEN i < 200000 THEN 2 * (i + 100000) + 22 END,
       'tx-' || (2 * i + 1), CAST('manifest' AS {blob}), 1, 1000, 100, 'run_' || i, :now - (300000 - i) * 1000, NULL
  FROM series
 UNION ALL
SELECT 'deep', 2 * i + 1, 'k' || (i / 5 % 100), 2 * i + 22, CASE WHEN i < 299500 THEN 2 * (i + 500) + 22 END,
       'tx-' || (2 * i + 1), CAST('manifest' AS {blob}), 1, 1000, 100, 'run_' || i, :now - (300000 - i) * 1000,
       CASE WHEN i < 299000 AND i % 10 = 0 THEN 1 END
  FROM series WHERE i % 5 = 0

-- name: fill_message
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', 2 * i + 22, 0, :now - (300000 - i) * 1000, 'partitions', 'partition:default.small_' || (i % 5000),
       '{"count": 1}'
  FROM series
 UNION ALL
SELECT 'program', 2 * i + 22, 0, :now - (300000 - i) * 1000, 'run', 'program:default.app.p' || (i % 300), '{}'
  FROM series WHERE i % 10 = 0
 UNION ALL
SELECT 'data', 2 * i + 22, 1, :now - (300000 - i) * 1000, 'windows', 'windows:default.app.p' || (i % 300), '{}'
  FROM series WHERE i % 100 = 0

-- name: fill_topic
INSERT INTO topic (topic, created_at, time_to_live, expired_seq)
VALUES ('data', NULL, 1000, 0), ('gone', NULL, NULL, 7)

-- name: fill_retention
INSERT INTO retention (id, seq, at, moved_at, tick, delete_seq, delete_at) VALUES (1, 200000, 10, 5, 600000, 100000, 5)

-- name: fill_subscriber
INSERT INTO subscriber (topic, name, seq, n) VALUES ('data', 'scheduler', 599900, 0), ('program', 'scheduler', 0, -1), ('markers', 'janitor', 599900, 0)

-- name: fill_garbage
INSERT INTO garbage (location, dataset_id, write_pointer, reason, not_before)
SELECT 'wide/tx-' || i, 'wide', i, 'aborted', CASE WHEN i < 20 THEN 1000 ELSE :now + i * 1000 END
  FROM series WHERE i < 20000

-- name: fill_reader_pin
INSERT INTO reader_pin (pin_id, dataset_id, commit_seq, run_id)
SELECT 'pin_' || i, CASE WHEN i % 2 = 0 THEN 'wide' ELSE 'small_' || (i % 200) END, 2 * i + 22, 'live_' || i
  FROM series WHERE i < 20000

-- name: fill_consumer
INSERT INTO consumer (consumer_id, dataset_id, name, start_version, versions_to_check, spec, revision)
SELECT dataset_id, dataset_id, 'reader', 599600, '[]', '{}', 0 FROM dataset
 UNION ALL SELECT 'feed', 'mirror', 'default.app_1.p1', 599600, '[]', '{}', 0

-- name: fill_consumer_reset
-- Each data set's reader was reset once.
INSERT INTO consumer_reset (consumer_id, dataset_id, name, since_seq, start_version, versions_to_check, to_seq, asked,
                            by_whom, at, reset_seq)
SELECT 'past_' || dataset_id, dataset_id, 'reader', 0, 1000, '[]', 2000, 'now', 'somebody', :now, 2000 FROM dataset

-- name: fill_consumer_work
-- All but the newest 3,000 are done. Of these, 200 are being processed, 10 are discarded, most others wait for a time.
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state, failures, not_before, run_id,
                           epoch)
SELECT 'wide', 2 * i + 1, 'k' || (i % 100000), 2 * i + 22,
       CASE WHEN i < 297000 THEN 'completed' WHEN i < 297200 THEN 'in_progress' WHEN i < 297210 THEN 'discarded'
            ELSE 'new' END,
       CASE WHEN i >= 297000 AND i < 298010 THEN 5 ELSE 0 END,
       CASE WHEN i >= 297210 AND i < 298000 THEN :now + 3600000 WHEN i >= 298000 AND i < 298010 THEN 1000 ELSE 0 END,
       CASE WHEN i < 297000 THEN 'run_' || i WHEN i = 297198 THEN 'alone'
            WHEN i < 297210 THEN 'live_' || (i % 2) END,
       CASE WHEN i < 297210 THEN 1 END
  FROM series
 UNION ALL
SELECT 'small_' || (i / 150 % 200), 2 * i + 1, 'k' || i, 2 * i + 22, 'completed', 0, 0, 'run_' || i, 1
  FROM series WHERE i % 15 = 0

-- name: fill_inbox_file
-- As the working set: the newest 3,000 are not done. One name in a thousand was written twice.
INSERT INTO inbox_file (dataset_id, name, content_version, etag, bytes, modified_at, first_seen, seen_seq, status,
                        failures, not_before, run_id, epoch)
SELECT 'landing', 'f' || i, 'v1', 'e', 1000, :now - (300000 - i) * 1000, :now - (300000 - i) * 1000, i,
       CASE WHEN i < 297000 THEN CASE WHEN i % 997 = 0 THEN 'QUARANTINED' ELSE 'SUCCESS' END
            WHEN i < 297200 THEN 'IN_PROGRESS' WHEN i < 298010 THEN 'ERROR' ELSE 'NEW' END,
       CASE WHEN i = 297198 THEN 3 WHEN i >= 297200 AND i < 298010 THEN 1 ELSE 0 END,
       CASE WHEN i >= 297200 AND i < 298000 THEN :now + 3600000 WHEN i >= 298000 AND i < 298010 THEN 1000 ELSE 0 END,
       CASE WHEN i < 297000 THEN 'run_' || (i / 10) WHEN i = 297198 THEN 'alone_file' WHEN i < 297200 THEN 'live_' || (i % 2) END,
       CASE WHEN i < 297200 THEN 1 END
  FROM series
 UNION ALL
SELECT 'landing', 'f' || i, 'v0', 'e', 1000, :now - (300000 - i) * 1000, :now - (300000 - i) * 1000, i, 'SUCCESS', 0, 0,
       'run_' || (i / 10), 1
  FROM series WHERE i % 1000 = 999
 UNION ALL
SELECT 'small_' || (i / 150 % 200), 'f' || i, 'v1', 'e', 1000, :now, :now, i, 'SUCCESS', 0, 0, 'run_' || i, 1
  FROM series WHERE i % 15 = 0

-- name: fill_leaving_files
-- locks: inbox_file
UPDATE inbox_file SET afterwards = 'archive', archive = 'file:///archive', leave_at = 1000
 WHERE dataset_id = 'landing' AND name >= 'f' AND content_version = 'v1' AND length(name) = 4 AND status = 'SUCCESS'

-- name: fill_absent_files
-- locks: inbox_file
UPDATE inbox_file SET absent_since = 1 WHERE dataset_id = 'landing' AND name IN ('f7', 'f8', 'f9', 'f29700', 'f29701')

-- name: fill_inbox_marker
INSERT INTO inbox_marker (dataset_id, next_listing_at, in_charge, attempts, retry_after)
SELECT 'landing', 1000, NULL, 3, 60000
 UNION ALL
SELECT 'inbox_' || i, CASE WHEN i < 20 THEN 1000 + i ELSE :now + 3600000 + i END,
       CASE WHEN i < 20 THEN NULL ELSE 'node_' || (i / 200) END, 3, 60000
  FROM series WHERE i < 20000

-- name: fill_hive_note
INSERT INTO hive_note (metastore, database_name, table_name, own, earlier, seq)
SELECT 'thrift://m:9083', 'default', 't' || i, '{}', '{}', i FROM series WHERE i < 100

-- name: fill_inbox_charge
INSERT INTO inbox_charge (process, until)
SELECT 'node_' || i, CASE WHEN i IN (1, 2, 100) THEN 1000 ELSE :now + 3600000 END FROM series WHERE i <= 100

-- name: fill_app
INSERT INTO app (namespace, name, version, spec, deployed_at)
SELECT 'default', 'app_' || i, CASE WHEN i = 1 THEN 30000 ELSE 1 END, '{}', :now FROM series WHERE i < 20

-- name: fill_deployment
-- Of `app_1` a past of 30,000 deployments, by two codes in turn.
INSERT INTO deployment (namespace, app, version, bundle, file, actor, deployed_at, changes, keeps)
SELECT 'default', 'app_' || i, 1, 'bundle_' || i, 'app.py', 'ann@desk', :now, '[]', 1 FROM series WHERE i < 20 AND i <> 1
 UNION ALL
SELECT 'default', 'app_1', i + 1, 'bundle_' || (1 + i % 2), 'app.py', 'ann@desk', :now, '[]',
       CASE WHEN i < 29990 THEN 0 ELSE 1 END
  FROM series WHERE i < 30000

-- name: fill_bundle
-- Bundles of 20 apps; five older bundles that wait for a janitor, and five that a janitor is deleting.
INSERT INTO bundle (digest, files, bytes, content, location, leaving, packed_at)
SELECT 'bundle_' || i, '{}', 1, NULL, 'file:///data/bundle_' || i, CASE WHEN i < 25 THEN 0 ELSE 1 END, 0 FROM series WHERE i < 30

-- name: fill_bundle_upload
INSERT INTO bundle_upload (location, begun_at, abandoned)
SELECT 'file:///data/' || CASE WHEN i = 0 THEN 'bundle_5' ELSE 'upload_' || i END, 0, i % 2 FROM series WHERE i < 5

-- name: fill_program
INSERT INTO program (program_id, namespace, app, name, kind, spec, bundle, spark_profile)
SELECT 'program_' || i, 'default', 'app_' || (i % 20), 'p' || i, 'spark', '{}', 'bundle_' || (i % 20),
       CASE WHEN i % 10 = 7 THEN 'big' ELSE '' END
  FROM series WHERE i < 300

-- name: fill_run
-- 300,000 have ended, 200 are alive, 5,000 may start at once (4,900 with Spark), 100 later.
INSERT INTO run (run_id, kind, program_id, schedule_id, job_id, state, epoch, arguments, triggered_by, write_pointer,
                 owner, host, pid, lease_until, not_before, created_at, started_at, ended_at, spark, token_digest)
SELECT 'run_' || i, 'program', 'program_' || (i % 300), 'schedule_' || (i / 15), 'done_' || i,
       CASE WHEN i % 100 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, 1, '{}', '{}', 2 * i + 1, 'runner_' || (i / 1000),
       'host', 1, NULL, 0, :now - (300000 - i) * 1000, :now - (300000 - i) * 1000, :now - (300000 - i) * 1000 + 500,
       1, NULL
  FROM series
 UNION ALL
SELECT 'live_' || i, 'program', 'program_' || i, 'schedule_' || i, 'running_' || i,
       CASE i % 10 WHEN 0 THEN 'STARTING' WHEN 9 THEN 'STOPPING' ELSE 'RUNNING' END, 1, '{}', '{}', 600100 + i,
       'runner_live', 'host', 1, :now + 60000, 0, :now, :now, NULL, 1, 'digest_' || i
  FROM series WHERE i < 200
 UNION ALL
SELECT 'alone', 'program', 'program_0', NULL, NULL, 'RUNNING', 1, '{}', '{}', NULL, 'runner_live', 'host', 1,
       :now + 60000, 0, :now, :now, NULL, 1, NULL
 UNION ALL
SELECT 'pending_' || i, 'program', 'program_' || (i % 300), 'schedule_' || i, 'launched_' || i, 'PENDING', 0, '{}',
       '{}', NULL, NULL, NULL, NULL, NULL, CASE WHEN i < 5000 THEN 0 ELSE :now + 3600000 END, :now, NULL, NULL,
       CASE WHEN i < 4900 THEN 1 ELSE 0 END, NULL
  FROM series WHERE i < 5100

-- name: fill_unloaded
-- locks: run
UPDATE run SET exit_cause = 'unloaded', exit_reason = 'it cannot be loaded' WHERE run_id IN ('pending_5', 'pending_6')

-- name: fill_lacking
-- locks: run
UPDATE run SET exit_cause = 'lacking', exit_reason = 'no profile' WHERE run_id IN ('pending_7', 'pending_17')

-- name: fill_run_input
INSERT INTO run_input (run_id, dataset_id, write_pointer, item)
SELECT 'run_' || i, 'wide', 2 * i + 1, 'k' || (i % 100000) FROM series

-- name: fill_chosen_input
-- Of a run that waits: partitions, one that was replaced and expired, and files that are to leave.
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, content_version)
SELECT 'pending_9', 'wide', 2 * i + 1, 'k' || (i % 100000), '' FROM series WHERE i >= 299000 AND i < 299050
 UNION ALL
SELECT 'pending_9', 'landing', 0, 'f' || i, 'v1' FROM series WHERE i >= 100 AND i < 150
 UNION ALL
SELECT 'pending_9', 'mirror', 599981, '', '' FROM series WHERE i = 0

-- name: fill_worker_input
INSERT INTO run_input (run_id, dataset_id, write_pointer, item, commit_seq)
SELECT 'work_' || (i % 10), 'wide', 2 * i + 1, 'k' || (i % 100000), 2 * i + 5 FROM series WHERE i >= 200000 AND i < 220000

-- name: fill_workflow_run
INSERT INTO workflow_run (run_id, spec, holding, holds_until)
SELECT 'run_' || i, '{}', CASE WHEN i % 1000 = 1 THEN 'held' ELSE 'closed' END,
       CASE WHEN i % 1000 = 1 THEN :now + (i - 280000) * 100 END
  FROM series WHERE i >= 200000
 UNION ALL SELECT 'live_' || i, '{}', 'nothing', NULL FROM series WHERE i < 200

-- name: fill_workflow_node
INSERT INTO workflow_node (workflow_id, node, run_id, outcome)
SELECT 'run_' || i, 'fetch', 'run_' || (i - 1), 'COMPLETED' FROM series WHERE i >= 200000
 UNION ALL SELECT 'live_' || i, 'fetch', 'run_' || i, NULL FROM series WHERE i < 199

-- name: fill_slot_limit
INSERT INTO slot_limit (limit_key)
SELECT 'program:program_' || i FROM series WHERE i < 300
 UNION ALL SELECT 'other:' || i FROM series WHERE i < 20000

-- name: fill_backfill
-- Ten run, of which the first has 50,000 items; 20,000 have ended, a few of them with failed items.
INSERT INTO backfill (backfill_id, program_id, namespace, item_kind, takes_all, choice, dataset_id, arguments, state,
                      concurrency, priority, quiet, actor, waiting, failed, created_at, ended_at)
SELECT 'backfill_' || i, 'program_' || (i % 300), 'default', 'partitions', 0, '{}', 'wide', '{}',
       CASE WHEN i < 10 THEN 'RUNNING' ELSE 'COMPLETED' END, 4, -1, 0, 'ann@desk',
       CASE WHEN i = 0 THEN 49000 ELSE 0 END, CASE WHEN i >= 10 AND i % 1000 = 0 THEN 3 ELSE 0 END, :now - 1000000000 + i, CASE WHEN i >= 10 THEN 1000 + i END
  FROM series WHERE i < 20010

-- name: fill_backfill_item
-- Of the first, four run, of which two have ended; some have failed.
INSERT INTO backfill_item (backfill_id, no, item, state, run_id, why)
SELECT 'backfill_0', i, 'k' || i,
       CASE WHEN i < 900 THEN 'DONE' WHEN i < 996 THEN 'FAILED' WHEN i < 1000 THEN 'RUNNING' ELSE 'WAITING' END,
       CASE WHEN i < 998 THEN 'run_' || i WHEN i < 1000 THEN 'live_' || (i - 990) END, ''
  FROM series WHERE i < 50000
 UNION ALL
SELECT 'backfill_1', i, 'k' || i, 'WAITING', NULL, '' FROM series WHERE i < 50
 UNION ALL
SELECT 'backfill_' || (i % 10000 + 10), i, 'k' || i, 'DONE', 'run_' || i, '' FROM series WHERE i < 200000

-- name: fill_node
INSERT INTO node (node_id, host, process, roles, slots, started_at, seen_at)
SELECT 'node_' || i, 'host', 'boot ' || i, '["runner"]', 2, 1000, 1000 + i FROM series WHERE i < 200

-- name: fill_worker
-- Ten workers that should have two runs each, of which one waits; every other one is postponed.
INSERT INTO worker (program_id, instances, failures, not_before)
SELECT 'worker_' || i, 2, 1, CASE WHEN i % 2 = 0 THEN :now + 3600000 ELSE 0 END FROM series WHERE i < 10

-- name: fill_worker_program
INSERT INTO program (program_id, namespace, app, name, kind, spec)
SELECT 'worker_' || i, 'default', 'app_1', 'w' || i, 'worker', '{}' FROM series WHERE i < 10

-- name: fill_worker_run
INSERT INTO run (run_id, kind, program_id, state, epoch, arguments, triggered_by, created_at)
SELECT 'work_' || i, 'program', 'worker_' || i, 'PENDING', 0, '{}', '{}', :now FROM series WHERE i < 10

-- name: fill_slot
INSERT INTO slot (limit_key, run_id, taken_at)
SELECT 'program:' || program_id, run_id, created_at FROM run WHERE ended_at IS NULL
 UNION ALL SELECT 'other:' || i, 'pending_' || (i / 4), :now FROM series WHERE i < 20000

-- name: fill_schedule
INSERT INTO schedule (schedule_id, namespace, app, name, generation, created_seq, since_seq, since_at, program_id, spec,
                      owner, status, suspended_at, suspended_mode)
SELECT 'schedule_' || i, CASE WHEN i % 200 = 133 THEN 'few' ELSE 'default' END, 'app_' || (i % 20), 's' || i, 1, 1, 1, :now, 'program_' || (i % 300), '{}', 'app',
       CASE WHEN i % 10 = 0 THEN 'SUSPENDED' ELSE 'SCHEDULED' END, CASE WHEN i % 10 = 0 THEN i END,
       CASE WHEN i % 10 = 0 THEN 'drop' END
  FROM series WHERE i < 20000

-- name: fill_hook_delivery
INSERT INTO hook_delivery (hook, delivery, seq, n, at)
SELECT 'default.hook_' || (i % 20), 'delivery_' || i, i, 0, :now - 80000000 + i FROM series WHERE i < 20000

-- name: fill_expectation
INSERT INTO expectation (dataset_id, declared, since_at, next_check_at, broken_since)
SELECT dataset_id, '{"every": "1d"}', 1, :now + 3600000, CASE WHEN dataset_id LIKE 'small_1%' THEN 1000 END FROM dataset WHERE dataset_id NOT IN ('deep', 'wide')
 UNION ALL SELECT 'deep', '{"every": "1d"}', 1, 1000, CAST(NULL AS BIGINT)
 UNION ALL SELECT 'gone_' || i, '{"every": "1d"}', 1, :now + 3600000 + i, CASE WHEN i < 60 THEN 1000 + i END
  FROM series WHERE i < 20000

-- name: fill_passed_while_suspended
INSERT INTO passed_while_suspended (schedule_id, topic, messages, first_seq, first_n, last_seq, last_n)
SELECT 'schedule_' || i, 'data', 3, 1, 0, 9, 0 FROM series WHERE i < 20000

-- name: fill_trigger_key
INSERT INTO trigger_key (event_key, schedule_id, trigger_no)
SELECT 'partition:default.small_' || (i % 200), 'schedule_' || i, 0 FROM series WHERE i < 20000

-- name: fill_trigger_type
INSERT INTO trigger_type (schedule_id, trigger_type, namespace, app, name)
SELECT 'schedule_' || i, CASE WHEN i % 3 = 0 THEN 'cron' ELSE 'new_partitions' END, 'default', 'app_' || (i % 20), 's' || i
  FROM series WHERE i < 20000

-- name: fill_start_window
INSERT INTO start_window (schedule_id, program_id, length)
SELECT 'schedule_' || i, 'program_' || (i % 300), 1000000 FROM series WHERE i < 20000

-- name: fill_timer
INSERT INTO timer (schedule_id, trigger_no, next_fire_at, behind)
SELECT 'schedule_' || i, 1, CASE WHEN i % 1000 = 0 THEN 1000 ELSE :now + 3600000 + i END,
       CASE WHEN i % 2000 = 1 THEN 'job_' || i WHEN i % 1000 = 1 THEN 'done_' || i END
  FROM series WHERE i < 20000

-- name: fill_boundary
INSERT INTO boundary (schedule_id, trigger_no, next_at, last_at, zone, behind)
SELECT 'schedule_' || i, 1, 1000, 3000, 'UTC', CASE WHEN i % 200 = 0 THEN 'job_' || i ELSE 'done_' || i END
  FROM series WHERE i < 20000 AND i % 100 = 0

-- name: fill_fire
INSERT INTO fire (schedule_id, generation, trigger_no, fire_time, state, job_id)
SELECT 'schedule_' || (i / 15), 1, 1, 1000 + i % 15, 'joined', CASE WHEN i = 16 THEN 'job_1' ELSE 'done_' || i END FROM series

-- name: fill_job
INSERT INTO job (job_id, schedule_id, generation, state, created_at, satisfied_at, next_check_at)
SELECT 'job_' || i, 'schedule_' || i, 1, CASE WHEN i < 15000 THEN 'PENDING_TRIGGER' ELSE 'PENDING_CONSTRAINT' END, :now,
       CASE WHEN i >= 15000 THEN :now END,
       CASE WHEN i % 1000 = 0 THEN 1000 WHEN i % 10 = 1 THEN :now + 3600000 + i END
  FROM series WHERE i < 20000

-- name: fill_job_message
INSERT INTO job_message (job_id, topic, seq, n, trigger_no)
SELECT 'job_' || (i / 5), 'data', 2 * i + 22, 0, 0 FROM series WHERE i < 100000

-- name: fill_job_waits
INSERT INTO job_waits (wait_key, job_id)
SELECT 'slots:program:program_' || (i % 300), 'job_' || i FROM series WHERE i >= 15000 AND i < 20000

-- name: fill_job_history
INSERT INTO job_history (job_id, schedule_id, generation, outcome, run_id, created_at, ended_at)
SELECT 'done_' || i, 'schedule_' || (i / 15), 1, 'launched', 'run_' || i, :now - (300000 - i) * 1000,
       :now - (300000 - i) * 1000
  FROM series

-- name: fill_token
-- Sessions that have ended, and tokens of programs.
INSERT INTO token (token_id, kind, name, prefix, digest, role, namespace, created_at, created_by, expires_at, ended_at)
SELECT 'tok_' || i, CASE WHEN i < 250000 THEN 'session' ELSE 'token' END, 'n' || i, 'p' || i, 'd', 'viewer', '*', :now,
       'me', CASE WHEN i < 100 THEN 1000 WHEN i < 250000 THEN :now + 3600000 END,
       CASE WHEN i = 299500 THEN 1000 END
  FROM series

-- name: fill_request_key
INSERT INTO request_key (caller, request_key, digest, attempt, answer, at)
SELECT 'tok_1', 'k' || i, 'd', 1, CASE WHEN i % 2 = 0 THEN '{}' END,
       CASE WHEN i < 100 THEN 1000 ELSE :now END
  FROM series

-- name: fill_alert_rule
INSERT INTO alert_rule (rule_id, namespace, app, name, spec, looks_after, next_look_at)
SELECT 'rule_' || i, CASE WHEN i < 100 THEN 'few' ELSE 'default' END, 'app_' || (i / 100), 'n' || i, '{"rule": {"type": "run_failed"}}',
       CASE WHEN i % 200 = 0 THEN 'runs' ELSE '' END, CASE WHEN i < 100 THEN 1000 ELSE :now + 3600000 END
  FROM series WHERE i < 10000

-- name: fill_alert
-- The last hundred are open. The first hundred ended long ago.
INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, resolved_at)
SELECT 'alert_' || i, 'rule_' || (i % 10000), CASE WHEN i < 150 OR i >= 299990 THEN 'few' ELSE 'default' END, 'default.n' || (i % 10000), 's' || i,
       CASE WHEN i >= 299900 THEN 'OPEN' ELSE 'RESOLVED' END, 'why', 1, 1,
       CASE WHEN i < 100 THEN 1000 WHEN i < 299900 THEN :now END
  FROM series

-- name: fill_delivery
-- The last thousand wait, for ten targets.
INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, next_try_at, ended_at)
SELECT 'delivery_' || i, 't' || (i % 10), i, 0, 'alert_1', 'opened', '{}',
       CASE WHEN i >= 299000 THEN 'WAITING' WHEN i = 250 THEN 'DEAD' ELSE 'SENT' END, 1,
       CASE WHEN i BETWEEN 299000 AND 299008 THEN 1000 END,
       CASE WHEN i < 100 THEN 1000 WHEN i < 299000 THEN :now END
  FROM series

-- name: fill_outside_subscriber
-- A hundred are pushed to, of which ten are far behind.
INSERT INTO outside_subscriber (name, topic, event_type, key_prefix, target, seq, n, created_at, next_try_at)
SELECT 'n' || i, 'data', '', '', CASE WHEN i < 100 THEN '{}' END, CASE WHEN i < 10 THEN 1000 ELSE 600000000 END, 0, 1,
       CASE WHEN i = 50 THEN :now + 3600000 ELSE 0 END
  FROM series WHERE i < 20000

-- name: fill_quarantined_message
INSERT INTO quarantined_message (topic, seq, n, name, reason, at)
SELECT 'data', 2 * i + 22, 0, 'scheduler', 'damaged', :now FROM series WHERE i < 1000

-- name: fill_namespaces
-- locks: run
-- The runs of `few` are old: all others are newer.
UPDATE run SET namespace = CASE WHEN run_id IN (SELECT 'run_' || i FROM series WHERE i < 200) THEN 'few' ELSE 'default' END
 WHERE kind = 'program'

-- name: fill_places
UPDATE inbox_marker SET archive = 'file:///archive' WHERE dataset_id = 'landing'

-- name: fill_logs
-- locks: run
UPDATE run SET log_location = '/logs' WHERE run_id = 'alone'

-- name: fill_deadline
-- locks: run
UPDATE run SET deadline = :now - 1000 WHERE run_id IN (SELECT 'pending_' || i FROM series WHERE i < 300)

-- name: fill_counted_from
-- locks: timer
-- A hundred timers are of a time to come: the clock was set back.
UPDATE timer SET counted_from = next_fire_at - 1000

-- name: fill_counted_ahead
-- locks: timer
UPDATE timer SET counted_from = :now + 86400000 WHERE schedule_id IN (SELECT 'schedule_' || i FROM series WHERE i < 100)
