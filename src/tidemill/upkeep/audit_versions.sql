-- name: find_bound_of_versions
-- gives: bound
SELECT coalesce((SELECT commit_seq FROM partition_change {indexed_by:partition_commit}
                  WHERE dataset_id = :dataset_id AND commit_seq > :after AND commit_seq < :pointer
                  ORDER BY commit_seq LIMIT 1 OFFSET :place),
                (SELECT max(commit_seq) FROM partition_change
                  WHERE dataset_id = :dataset_id AND commit_seq > :after AND commit_seq < :pointer)) AS bound

-- name: read_versions
-- gives: write_pointer, commit_seq, superseded_seq, order_time, mismatch
-- A window of versions in the order of their commits, with what their transactions say.
SELECT change.write_pointer, change.commit_seq, change.superseded_seq, change.order_time,
       (SELECT CASE WHEN tx.state = 'committed' AND tx.commit_seq = change.commit_seq THEN ''
                    ELSE tx.state || ' ' || coalesce(CAST(tx.commit_seq AS TEXT), '') END
          FROM tx WHERE tx.write_pointer = change.write_pointer) AS mismatch
  FROM partition_change AS change {indexed_by:partition_commit}
 WHERE change.dataset_id = :dataset_id AND change.commit_seq > :after AND change.commit_seq <= :bound
 ORDER BY change.commit_seq
