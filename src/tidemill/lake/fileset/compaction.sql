-- name: refuse_replaced
-- A compaction against a commit that has replaced or dropped one of the changes that it names: the compaction loses.
SELECT tidemill_refuse('compaction_conflict', CAST(:dataset AS TEXT), named.shown,
                       (SELECT winner.run_id FROM partition_change AS winner
                         WHERE winner.dataset_id = :dataset_id AND winner.partition_key = named.partition_key
                           AND winner.commit_seq = change.superseded_seq))
  FROM {rows:named(write_pointer bigint, partition_key text, shown text)} AS named
 CROSS JOIN partition_change AS change
 WHERE change.dataset_id = :dataset_id AND change.write_pointer = named.write_pointer
   AND change.partition_key = named.partition_key AND change.superseded_seq IS NOT NULL

-- name: refuse_compacted
-- A compaction against another one that has committed meanwhile. `base` is the compaction that this one read, or 0.
SELECT tidemill_refuse('compaction_conflict', CAST(:dataset AS TEXT), wanted.shown, other.run_id)
  FROM {rows:wanted(partition_key text, shown text, base bigint)} AS wanted
 CROSS JOIN compaction AS other {indexed_by:compaction_current}
 WHERE other.dataset_id = :dataset_id AND other.partition_key = wanted.partition_key
   AND other.superseded_seq IS NULL AND other.write_pointer <> wanted.base

-- name: mark_compacted
-- Once: what an earlier compaction holds, the new compaction has read there.
UPDATE partition_change SET compacted_seq = {commit_seq}
 WHERE (dataset_id, write_pointer, partition_key) IN
       (SELECT CAST(:dataset_id AS TEXT), named.write_pointer, named.partition_key
          FROM {rows:named(write_pointer bigint, partition_key text)} AS named)
   AND compacted_seq IS NULL

-- name: supersede_compactions
-- With what replaces or drops the partitions, and before a new compaction of them is inserted: it is current.
UPDATE compaction SET superseded_seq = {commit_seq}
 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})

-- name: insert_compactions
INSERT INTO compaction
       (dataset_id, write_pointer, partition_key, commit_seq, location, manifest, files, bytes, row_count, run_id, at)
SELECT :dataset_id, :write_pointer, made.partition_key, {commit_seq}, :location, made.manifest, made.files, made.bytes,
       made.row_count, :run_id, tidemill_now()
  FROM {rows:made(partition_key text, manifest blob, files bigint, bytes bigint, row_count bigint)} AS made
