-- name: find_due
-- gives: location, dataset_id, write_pointer, not_before, attempts, partition_key
SELECT location, dataset_id, write_pointer, not_before, attempts, partition_key FROM garbage
 WHERE not_before <= tidemill_now() ORDER BY not_before, location LIMIT :most

-- name: find_publisher
-- gives: state
-- The last question before anything is deleted: has the transaction published after all? Its state never changes again.
-- A transaction without a row has ended long ago; its changes, if there are any, say that it has committed.
SELECT state FROM tx WHERE write_pointer = :write_pointer AND state IN ('in_progress', 'committed')
 UNION
SELECT 'committed' WHERE EXISTS (SELECT 1 FROM partition_change AS change
                                  WHERE change.dataset_id = :dataset_id AND change.write_pointer = :write_pointer)
 LIMIT 1

-- name: find_expired
-- gives: location, manifest
-- The last question before files of a change are deleted: has it expired after all? That is never taken back.
SELECT location, manifest FROM partition_change
 WHERE dataset_id = :dataset_id AND write_pointer = :write_pointer AND partition_key = :partition_key
   AND expired_at IS NOT NULL
 UNION ALL
SELECT location, manifest FROM compaction
 WHERE dataset_id = :dataset_id AND write_pointer = :write_pointer AND partition_key = :partition_key
   AND expired_at IS NOT NULL

-- name: find_sharing
-- gives: write_pointer, manifest
-- Others that name files there: what was adopted, or rolled back to. They are of the same key. Nothing else names the
-- files of a compaction.
SELECT write_pointer, manifest FROM partition_change
 WHERE dataset_id = :dataset_id AND location = :location AND partition_key = :partition_key AND expired_at IS NULL

-- name: find_living
-- gives: found
SELECT 1 AS found
 WHERE EXISTS (SELECT 1 FROM partition_change
                WHERE dataset_id = :dataset_id AND location = :location AND expired_at IS NULL)
    OR EXISTS (SELECT 1 FROM compaction
                WHERE dataset_id = :dataset_id AND location = :location AND expired_at IS NULL)

-- name: postpone
-- Only if no other janitor was here meanwhile.
UPDATE garbage SET attempts = :attempts, not_before = tidemill_now() + :wait, error = :error
 WHERE location = :location AND not_before = :not_before

-- name: forget
DELETE FROM garbage WHERE location = :location AND not_before = :not_before

-- name: read_position
-- gives: seq
-- Commits become visible in the order of their sequence: a janitor that has seen one commit has seen all before it.
SELECT seq FROM subscriber WHERE topic = 'markers' AND name = :name

-- name: find_committed
-- gives: commit_seq, write_pointer, dataset_id, location
-- The next commits, and what each published where: by the index over commits, then that over write pointers.
SELECT later.commit_seq, later.write_pointer, change.dataset_id, change.location
  FROM (SELECT commit_seq, write_pointer FROM tx
         WHERE commit_seq > :after AND commit_seq <= :bound ORDER BY commit_seq LIMIT :most) AS later
  LEFT JOIN partition_change AS change ON change.write_pointer = later.write_pointer AND change.expired_at IS NULL
 UNION
SELECT later.commit_seq, later.write_pointer, merged.dataset_id, merged.location
  FROM (SELECT commit_seq, write_pointer FROM tx
         WHERE commit_seq > :after AND commit_seq <= :bound ORDER BY commit_seq LIMIT :most) AS later
 CROSS JOIN compaction AS merged
 WHERE merged.write_pointer = later.write_pointer AND merged.expired_at IS NULL
 ORDER BY 1, 3

-- name: find_manifests
-- gives: write_pointer, manifest
-- All changes that name files of a directory: what was rolled back to or adopted names those of another transaction.
SELECT write_pointer, manifest FROM partition_change WHERE dataset_id = :dataset_id AND location = :location
 UNION ALL
SELECT write_pointer, manifest FROM compaction WHERE dataset_id = :dataset_id AND location = :location

-- name: move_position
INSERT INTO subscriber (topic, name, seq, n) VALUES ('markers', :name, :seq, 0)
    ON CONFLICT (topic, name) DO UPDATE SET seq = excluded.seq WHERE subscriber.seq < excluded.seq
