-- name: list_course
-- gives: partition_key, write_pointer, commit_seq, delivers, run_state, work_state
-- The current changes of some partitions: the state of the program's newest run that had a change as input, and what its
-- consumer did with the change. Replays are left out: a sandbox publishes nothing, and a failed replay leaves what its
-- run has published. A partition to which was appended has several changes, and each has a course of its own.
SELECT change.partition_key, change.write_pointer, change.commit_seq, change.delivers,
       (SELECT run.state FROM run_input AS input JOIN run ON run.run_id = input.run_id
         WHERE input.dataset_id = :dataset_id AND input.item = change.partition_key
           AND input.write_pointer = change.write_pointer AND run.program_id = :program_id AND run.replay_of IS NULL
         ORDER BY run.created_at DESC, run.run_id DESC LIMIT 1) AS run_state,
       (SELECT work.state FROM consumer_work AS work
         WHERE work.consumer_id = :consumer_id AND work.write_pointer = change.write_pointer
           AND work.partition_key = change.partition_key) AS work_state
  FROM partition_change AS change {indexed_by:partition_current}
 WHERE change.dataset_id = :dataset_id AND change.superseded_seq IS NULL AND change.op <> 'drop'
   AND change.partition_key IN ({texts:keys})
