-- name: subtract_replaced
-- Before the changes of these partitions are superseded: they are current. Cost: what is replaced.
UPDATE fileset_total
   SET partitions = fileset_total.partitions - replaced.partitions, files = fileset_total.files - replaced.files,
       bytes = fileset_total.bytes - replaced.bytes, row_count = fileset_total.row_count - replaced.row_count,
       merged = fileset_total.merged - replaced.merged
  FROM (SELECT sum(current.partitions) AS partitions, coalesce(sum(current.files), 0) AS files,
               coalesce(sum(current.bytes), 0) AS bytes, coalesce(sum(current.row_count), 0) AS row_count,
               coalesce(sum(current.merged), 0) AS merged
          FROM (SELECT count(DISTINCT partition_key) AS partitions,
                       sum(CASE WHEN compacted_seq IS NULL THEN files END) AS files,
                       sum(CASE WHEN compacted_seq IS NULL THEN bytes END) AS bytes,
                       sum(CASE WHEN compacted_seq IS NULL THEN row_count END) AS row_count, 0 AS merged
                  FROM partition_change {indexed_by:partition_current}
                 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})
                 UNION ALL
                SELECT 0, sum(files), sum(bytes), sum(row_count), sum(files)
                  FROM compaction {indexed_by:compaction_current}
                 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})
               ) AS current) AS replaced
 WHERE fileset_total.dataset_id = :dataset_id

-- name: add_written
-- After what is replaced was superseded, and before the changes are inserted: a key without a current change is a
-- new partition. Cost: a look-up for each key.
INSERT INTO fileset_total (dataset_id, partitions, files, bytes, row_count, merged)
SELECT CAST(:dataset_id AS TEXT), count(written.new), sum(written.files), sum(written.bytes),
       coalesce(sum(written.row_count), 0), 0
  FROM (SELECT added.files, added.bytes, added.row_count,
               CASE WHEN (SELECT 1 FROM partition_change AS change {indexed_by:partition_current}
                           WHERE change.dataset_id = :dataset_id AND change.partition_key = added.partition_key
                             AND change.superseded_seq IS NULL
                           LIMIT 1) IS NULL THEN 1 END AS new
          FROM {rows:added(partition_key text, files bigint, bytes bigint, row_count bigint)} AS added) AS written
 WHERE true
    ON CONFLICT (dataset_id) DO UPDATE
       SET partitions = fileset_total.partitions + excluded.partitions, files = fileset_total.files + excluded.files,
           bytes = fileset_total.bytes + excluded.bytes, row_count = fileset_total.row_count + excluded.row_count

-- name: replace_compacted
-- Before a compaction marks the changes that it holds: of these it counts in place of the changes, and of earlier
-- compactions of the same partitions.
UPDATE fileset_total
   SET files = fileset_total.files - held.files + :files, bytes = fileset_total.bytes - held.bytes + :bytes,
       row_count = fileset_total.row_count - held.row_count + :row_count,
       merged = fileset_total.merged - held.merged + :files
  FROM (SELECT coalesce(sum(current.files), 0) AS files, coalesce(sum(current.bytes), 0) AS bytes,
               coalesce(sum(current.row_count), 0) AS row_count, coalesce(sum(current.merged), 0) AS merged
          FROM (SELECT sum(change.files) AS files, sum(change.bytes) AS bytes, sum(change.row_count) AS row_count,
                       0 AS merged
                  FROM {rows:named(write_pointer bigint, partition_key text)} AS named
                 CROSS JOIN partition_change AS change
                 WHERE change.dataset_id = :dataset_id AND change.write_pointer = named.write_pointer
                   AND change.partition_key = named.partition_key AND change.compacted_seq IS NULL
                 UNION ALL
                SELECT sum(files), sum(bytes), sum(row_count), sum(files)
                  FROM compaction {indexed_by:compaction_current}
                 WHERE dataset_id = :dataset_id AND superseded_seq IS NULL AND partition_key IN ({texts:keys})
               ) AS current) AS held
 WHERE fileset_total.dataset_id = :dataset_id

-- name: find_totals
-- gives: dataset_id, partitions, files, bytes, row_count, merged
SELECT dataset_id, partitions, files, bytes, row_count, merged FROM fileset_total
 WHERE dataset_id IN ({texts:dataset_ids})

-- name: compare_totals
-- gives: partitions, files, bytes, row_count, merged
-- As kept, and from what is current, for the audit: two rows that differ if they do. Cost: what is current.
SELECT coalesce(kept.partitions, 0) AS partitions, coalesce(kept.files, 0) AS files, coalesce(kept.bytes, 0) AS bytes,
       coalesce(kept.row_count, 0) AS row_count, coalesce(kept.merged, 0) AS merged
  FROM dataset LEFT JOIN fileset_total AS kept ON kept.dataset_id = dataset.dataset_id
 WHERE dataset.dataset_id = :dataset_id
 UNION
SELECT CAST(sum(current.partitions) AS BIGINT), CAST(coalesce(sum(current.files), 0) AS BIGINT),
       CAST(coalesce(sum(current.bytes), 0) AS BIGINT), CAST(coalesce(sum(current.row_count), 0) AS BIGINT),
       CAST(coalesce(sum(current.merged), 0) AS BIGINT)
  FROM (SELECT count(DISTINCT partition_key) AS partitions,
               sum(CASE WHEN compacted_seq IS NULL THEN files END) AS files,
               sum(CASE WHEN compacted_seq IS NULL THEN bytes END) AS bytes,
               sum(CASE WHEN compacted_seq IS NULL THEN row_count END) AS row_count, 0 AS merged
          FROM partition_change {indexed_by:partition_current}
         WHERE superseded_seq IS NULL AND dataset_id = :dataset_id
         UNION ALL
        SELECT 0, sum(files), sum(bytes), sum(row_count), sum(files)
          FROM compaction {indexed_by:compaction_current}
         WHERE superseded_seq IS NULL AND dataset_id = :dataset_id) AS current
