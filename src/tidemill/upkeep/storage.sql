-- name: find_bound
SELECT coalesce((SELECT write_pointer FROM partition_change
                  WHERE dataset_id = :dataset_id AND write_pointer > :after
                  ORDER BY write_pointer LIMIT 1 OFFSET :place),
                (SELECT max(write_pointer) FROM partition_change
                  WHERE dataset_id = :dataset_id AND write_pointer > :after))

-- name: read_locations
SELECT DISTINCT location FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound

-- name: read_manifests
SELECT location, partition_key, manifest, expired_at FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer > :after AND write_pointer <= :bound
 ORDER BY location, partition_key

-- name: find_transactions
-- What the catalog knows of these write pointers: their state, and whether they have left garbage in the data set.
SELECT tx.write_pointer, tx.state,
       (SELECT 1 FROM garbage
         WHERE garbage.location = :dataset_id || '/tx=' || CAST(tx.write_pointer AS TEXT)
            OR garbage.location = :dataset_id || '/tx=' || CAST(tx.write_pointer AS TEXT) || '-' || :incarnation)
  FROM tx WHERE tx.write_pointer IN ({ints:pointers})
