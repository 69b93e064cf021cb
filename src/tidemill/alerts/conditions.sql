-- name: list_programs
-- gives: program_id, app, name
SELECT program_id, app, name FROM program WHERE namespace = :namespace AND retired = 0 ORDER BY app, name

-- name: find_program
-- gives: program_id
SELECT program_id FROM program WHERE namespace = :namespace AND app = :app AND name = :name AND retired = 0

-- name: list_failing
-- gives: program_id, run_id, exit_reason, holds_until, since
-- Programs with so many failures since their last success: the newest one, and the end of the one that is `others`
-- behind it. Replays are left out: they run the code of another time. A workflow keeps claims until holds_until. Look-ups
-- in indexes, for each program: killed runs and rejected ones, however many, are not read. Retention keeps these runs.
SELECT failing.program_id, newest.run_id, newest.exit_reason, workflow_run.holds_until, failing.since
  FROM (SELECT program_id,
               (SELECT run_id FROM run WHERE run.program_id = program.program_id AND state = 'FAILED'
                   AND replay_of IS NULL
                 ORDER BY ended_at DESC LIMIT 1) AS run_id,
               (SELECT ended_at FROM run WHERE run.program_id = program.program_id AND state = 'FAILED'
                   AND replay_of IS NULL
                   AND ended_at >= coalesce((SELECT ended_at FROM run AS success
                                              WHERE success.program_id = program.program_id
                                                AND success.state = 'COMPLETED' AND success.replay_of IS NULL
                                              ORDER BY ended_at DESC LIMIT 1), 0)
                 ORDER BY ended_at DESC LIMIT 1 OFFSET :others) AS since
          FROM program WHERE program_id IN ({texts:program_ids})) AS failing
 CROSS JOIN run AS newest LEFT JOIN workflow_run ON workflow_run.run_id = newest.run_id
 WHERE failing.since IS NOT NULL AND newest.run_id = failing.run_id

-- name: list_after_runs
-- gives: spec
SELECT DISTINCT spec FROM alert_rule {indexed_by:alert_rule_after} WHERE looks_after <> '' AND looks_after = 'runs'

-- name: find_longest
-- gives: name, at
SELECT run_id AS name, started_at AS at FROM run
 WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND program_id = :program_id AND started_at IS NOT NULL
 ORDER BY started_at LIMIT 1

-- name: list_stopped
-- gives: app, program, backfill_id, reason, failed, ended_at
-- Backfills that have paused by themselves, or have ended with failed items, the newest of a program first. A newer one
-- of the program without a failed item makes good for those that have ended. Cost: these backfills, and newer ones.
SELECT program.app, program.name AS program, stopped.backfill_id, stopped.reason, stopped.failed, stopped.ended_at
  FROM backfill AS stopped {indexed_by:backfill_stopped}
  JOIN program ON program.program_id = stopped.program_id
 WHERE stopped.namespace = :namespace
   AND (stopped.state = 'PAUSED' AND stopped.reason <> '' OR stopped.state = 'COMPLETED' AND stopped.failed > 0)
   AND (stopped.state = 'PAUSED'
        OR (SELECT 1 FROM backfill AS newer {indexed_by:backfill_program}
             WHERE newer.program_id = stopped.program_id AND newer.created_at > stopped.created_at
               AND newer.state = 'COMPLETED' AND newer.failed = 0 LIMIT 1) IS NULL)
 ORDER BY stopped.created_at DESC, stopped.backfill_id DESC

-- name: find_waiting_job
-- gives: name, at
SELECT job.job_id AS name, job.satisfied_at AS at
  FROM schedule JOIN job ON job.schedule_id = schedule.schedule_id
 WHERE schedule.namespace = :namespace AND schedule.app = :app AND schedule.name = :name
   AND job.state = 'PENDING_CONSTRAINT' AND job.satisfied_at IS NOT NULL

-- name: find_dataset
-- gives: dataset_id
SELECT dataset_id FROM dataset WHERE namespace = :namespace AND name = :name AND dropped_at IS NULL

-- name: count_quarantined
-- gives: files
SELECT count(*) AS files
  FROM (SELECT 1 FROM inbox_file {indexed_by:inbox_file_refused}
         WHERE dataset_id = :dataset_id AND status = 'QUARANTINED' LIMIT :limit) AS bad

-- name: find_last_move
-- gives: at
SELECT at FROM watermark_move WHERE dataset_id = :dataset_id ORDER BY commit_seq DESC LIMIT 1

-- name: list_times
-- gives: milliseconds
-- Retention keeps these runs.
SELECT ended_at - started_at AS milliseconds FROM run
 WHERE program_id = :program_id AND state = 'COMPLETED' AND started_at IS NOT NULL AND replay_of IS NULL
 ORDER BY ended_at DESC LIMIT :limit

-- name: find_last_arrival
-- gives: at
-- Of a new data set: its creation.
SELECT max(at) AS at FROM (
    SELECT created_at AS at FROM dataset WHERE dataset_id = :dataset_id
     UNION ALL
    SELECT * FROM (SELECT first_seen FROM inbox_file WHERE dataset_id = :dataset_id
                    ORDER BY first_seen DESC LIMIT 1) AS file
     UNION ALL
    SELECT * FROM (SELECT at FROM partition_change WHERE dataset_id = :dataset_id AND op <> 'drop'
                    ORDER BY commit_seq DESC LIMIT 1) AS change) AS arrival

-- name: measure_waiting
-- gives: partitions, oldest
-- The first ones of the working set and of the changes that no take has seen: no more than it takes to tell.
SELECT count(*) AS partitions, min(at) AS oldest FROM (
    SELECT * FROM (
        SELECT change.at
          FROM consumer_work AS work CROSS JOIN partition_change AS change
         WHERE work.consumer_id = :consumer_id AND work.state = 'new'
           AND change.dataset_id = :dataset_id AND change.write_pointer = work.write_pointer
           AND change.partition_key = work.partition_key
         ORDER BY work.not_before, work.write_pointer LIMIT :limit) AS working
     UNION ALL
    SELECT * FROM (
        SELECT change.at FROM partition_change AS change
         WHERE dataset_id = :dataset_id AND write_pointer >= :start_version AND delivers = 1
           AND (SELECT 1 FROM consumer_work AS known
                 WHERE known.consumer_id = :consumer_id AND known.write_pointer = change.write_pointer
                   AND known.partition_key = change.partition_key) IS NULL
         ORDER BY write_pointer LIMIT :limit) AS unseen
     UNION ALL
    SELECT * FROM (
        SELECT change.at FROM partition_change AS change
         WHERE dataset_id = :dataset_id AND write_pointer IN ({ints:versions_to_check}) AND delivers = 1
           AND (SELECT 1 FROM consumer_work AS known
                 WHERE known.consumer_id = :consumer_id AND known.write_pointer = change.write_pointer
                   AND known.partition_key = change.partition_key) IS NULL
         LIMIT :limit) AS late) AS waiting

-- name: find_oldest_due
-- gives: at
SELECT min(at) AS at FROM (
    SELECT min(next_fire_at) AS at FROM timer WHERE behind IS NULL
     UNION ALL
    SELECT min(next_check_at) FROM job WHERE next_check_at IS NOT NULL) AS due
