-- name: find_bound
-- gives: bound
-- Windows over changes and compactions: ranges of their write pointers.
SELECT coalesce((SELECT named.write_pointer
                   FROM (SELECT write_pointer FROM partition_change
                          WHERE dataset_id = :dataset_id AND write_pointer > :after
                          UNION ALL
                         SELECT write_pointer FROM compaction
                          WHERE dataset_id = :dataset_id AND write_pointer > :after) AS named
                  ORDER BY named.write_pointer LIMIT 1 OFFSET :place),
                (SELECT max(last.write_pointer)
                   FROM (SELECT max(write_pointer) AS write_pointer FROM partition_change
                          WHERE dataset_id = :dataset_id AND write_pointer > :after
                          UNION ALL
                         SELECT max(write_pointer) FROM compaction
                          WHERE dataset_id = :dataset_id AND write_pointer > :after) AS last)) AS bound

-- name: read_locations
-- gives: location
SELECT location FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound
 UNION
SELECT location FROM compaction
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound

-- name: read_manifests
-- gives: location, partition_key, write_pointer, manifest, expired_at
SELECT location, partition_key, write_pointer, manifest, expired_at FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound
 UNION ALL
SELECT location, partition_key, write_pointer, manifest, expired_at FROM compaction
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound
 ORDER BY location, partition_key

-- name: find_transactions
-- gives: write_pointer, state, has_garbage
-- What the catalog knows of these write pointers: their state, and whether they have left garbage in the data set.
SELECT tx.write_pointer, tx.state,
       (SELECT 1 FROM garbage
         WHERE garbage.location = :dataset_id || '/tx-' || CAST(tx.write_pointer AS TEXT)
            OR garbage.location = :dataset_id || '/tx-' || CAST(tx.write_pointer AS TEXT) || '-' || :incarnation)
       AS has_garbage
  FROM tx WHERE tx.write_pointer IN ({ints:pointers})
