-- name: find_last_file
-- gives: name
SELECT max(name) AS name FROM inbox_file WHERE dataset_id = :dataset_id

-- name: find_bound_of_files
-- gives: bound
SELECT coalesce((SELECT name FROM inbox_file
                  WHERE dataset_id = :dataset_id AND name > :after AND name <= :last
                  ORDER BY name LIMIT 1 OFFSET :place),
                (SELECT max(name) FROM inbox_file WHERE dataset_id = :dataset_id AND name > :after AND name <= :last))
       AS bound

-- name: read_files
-- gives: name, content_version, status, run_id, is_old, has_input, run_state, tx_state
-- A claim by an engine outside closes files one by one, each in a commit of its own: it needs no transaction, and what
-- it has closed stays so however it ends. So do the claims of a workflow, which a failed one may still hold.
SELECT file.name, file.content_version, file.status, file.run_id,
       CASE WHEN file.seen_seq <= :horizon THEN 1 ELSE 0 END AS is_old,
       (SELECT 1 FROM run_input AS input
         WHERE input.run_id = file.run_id AND input.dataset_id = :dataset_id AND input.write_pointer = 0
           AND input.item = file.name AND input.content_version = file.content_version) AS has_input,
       (SELECT CASE WHEN (SELECT 1 FROM workflow_run
                           WHERE workflow_run.run_id = run.run_id AND workflow_run.holding = 'held') IS NOT NULL
                    THEN 'holding' ELSE run.state END
          FROM run WHERE run.run_id = file.run_id) AS run_state,
       CASE WHEN EXISTS (SELECT 1 FROM run
                          WHERE run.run_id = file.run_id AND run.kind IN ('external', 'workflow') AND run.write_pointer IS NULL)
            THEN 'closed by a claim'
            ELSE (SELECT tx.state FROM tx
                   WHERE tx.write_pointer = (SELECT run.write_pointer FROM run WHERE run.run_id = file.run_id)) END
       AS tx_state
  FROM inbox_file AS file
 WHERE file.dataset_id = :dataset_id AND file.name > :after AND file.name <= :bound
 ORDER BY file.name, file.content_version
