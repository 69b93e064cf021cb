-- name: put_output
-- A deployment: how far the program has come is known from its state.
INSERT INTO window_output (program_id, dataset_id, time_value, start_value)
VALUES (:program_id, :dataset_id, :time_value, :start_value)
    ON CONFLICT (program_id) DO UPDATE
   SET dataset_id = excluded.dataset_id, time_value = excluded.time_value, start_value = excluded.start_value

-- name: forget_outputs
DELETE FROM window_output WHERE program_id IN ({texts:program_ids})

-- name: move_output
UPDATE window_output SET time_value = :time_value, start_value = :start_value WHERE program_id = :program_id

-- name: note_changes
-- Only for window programs that read the file set: nothing else asks. One that was retired and returns takes the times
-- of whole partitions.
INSERT INTO window_change (dataset_id, commit_seq, begins, ends)
SELECT :dataset_id, {commit_seq}, c.begins, c.ends
  FROM {rows:changes(begins bigint, ends bigint)} AS c
 WHERE EXISTS (SELECT 1 FROM window_input AS i JOIN program AS p ON p.program_id = i.program_id
                WHERE i.dataset_id = :dataset_id AND p.retired = 0)

-- name: list_changes
-- gives: commit_seq, begins, ends
SELECT commit_seq, begins, ends FROM window_change
 WHERE dataset_id = :dataset_id AND commit_seq >= :seen AND commit_seq < :until
 ORDER BY commit_seq, begins

-- name: forget_changes
-- Changes that all window programs over the file set have seen.
DELETE FROM window_change
 WHERE dataset_id = :dataset_id
   AND commit_seq < (SELECT min(w.seen)
                       FROM window_input AS i JOIN window_program AS w ON w.program_id = i.program_id
                                              JOIN program AS p ON p.program_id = i.program_id
                      WHERE i.dataset_id = :dataset_id AND p.retired = 0)

-- name: list_writers
-- gives: name
SELECT p.name FROM window_output AS o JOIN window_program AS p ON p.program_id = o.program_id
 WHERE o.dataset_id = :dataset_id ORDER BY p.name
