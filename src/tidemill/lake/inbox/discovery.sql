-- name: select_unknown
-- gives: place, known
-- Of the files listed, those whose content is not recorded, or only as skipped, or under another file of the disk: one
-- look-up by key each. The second column is 1 if the catalog knows the name.
SELECT listed.place,
       (SELECT 1 FROM inbox_file AS other WHERE other.dataset_id = :dataset_id AND other.name = listed.name LIMIT 1)
       AS known
  FROM {rows:listed(place bigint, name text, content_version text, etag text)} AS listed
  LEFT JOIN inbox_file AS file
    ON file.dataset_id = :dataset_id AND file.name = listed.name AND file.content_version = listed.content_version
 WHERE file.name IS NULL OR file.status = 'SKIPPED' OR file.etag <> listed.etag
 ORDER BY listed.place

-- name: compare_named
-- gives: place, others, skipped, twins
-- Of files whose names are known: how far another content of the same name has come (2 claimed, 1 processed,
-- quarantined or ignored, else 0), whether this very content is recorded as skipped, and how many contents of the name have its
-- size and time and may be the same: a copy has another etag.
SELECT listed.place,
       coalesce((SELECT max(CASE other.status WHEN 'IN_PROGRESS' THEN 2 WHEN 'SUCCESS' THEN 1 WHEN 'QUARANTINED' THEN 1
                                              WHEN 'IGNORED' THEN 1 ELSE 0 END)
                   FROM inbox_file AS other
                  WHERE other.dataset_id = listed.dataset_id AND other.name = listed.name
                    AND other.content_version <> listed.content_version), 0) AS others,
       (SELECT count(*) FROM inbox_file AS skipped
         WHERE skipped.dataset_id = listed.dataset_id AND skipped.name = listed.name
           AND coalesce(skipped.etag = listed.etag AND skipped.status = 'SKIPPED', FALSE)) AS skipped,
       (SELECT count(*) FROM inbox_file AS twin
         WHERE twin.dataset_id = listed.dataset_id AND twin.name = listed.name AND twin.bytes = listed.bytes
           AND coalesce(twin.modified_at BETWEEN listed.modified_at AND listed.latest
                        AND twin.status <> 'SKIPPED', FALSE)) AS twins
  FROM {rows:listed(dataset_id text, place bigint, name text, content_version text, etag text, bytes bigint, modified_at bigint, latest bigint)} AS listed
 ORDER BY listed.place

-- name: select_twins
-- gives: place, content_version, etag, status, checksum
-- Contents with size and time of a file that was listed under their name.
SELECT listed.place, twin.content_version, twin.etag, twin.status, twin.checksum
  FROM {rows:listed(dataset_id text, place bigint, name text, bytes bigint, modified_at bigint, latest bigint)} AS listed
  JOIN inbox_file AS twin
    ON twin.dataset_id = listed.dataset_id AND twin.name = listed.name AND twin.bytes = listed.bytes
   AND coalesce(twin.modified_at BETWEEN listed.modified_at AND listed.latest AND twin.status <> 'SKIPPED', FALSE)
 ORDER BY listed.place, twin.content_version

-- name: recognize_copies
-- locks: inbox_file
-- The content is as it was, its etag is not. Not while a run holds the file: its commit compares the etag. The time
-- stays: a copy may have lost its fraction, and the original may come back.
UPDATE inbox_file SET etag = copy.etag
  FROM {rows:copies(dataset_id text, name text, content_version text, known_etag text, etag text)} AS copy
 WHERE inbox_file.dataset_id = copy.dataset_id AND inbox_file.name = copy.name
   AND inbox_file.content_version = copy.content_version
   AND coalesce(inbox_file.etag = copy.known_etag AND inbox_file.status <> 'IN_PROGRESS', FALSE)

-- name: publish_found
-- Counts only the files that the next statement will record: if two processes discover the same file, one announces it.
-- No row for no files.
INSERT INTO message (topic, seq, n, at, event_type, event_key, payload)
SELECT 'data', {commit_seq},
       (SELECT coalesce(max(n) + 1, 0) FROM message WHERE topic = 'data' AND seq = {commit_seq}),
       tidemill_now(), 'files', :event_key,
       '{"count": ' || CAST(count(*) AS TEXT) || ', "bytes": ' || CAST(sum(CAST(found.bytes AS BIGINT)) AS TEXT) || '}'
  FROM {rows:found(name text, content_version text, bytes bigint, status text)} AS found
 WHERE found.status = 'NEW'
   AND NOT EXISTS (SELECT 1 FROM inbox_file AS file
                    WHERE file.dataset_id = :dataset_id AND file.name = found.name
                      AND file.content_version = found.content_version AND file.status <> 'SKIPPED')
HAVING count(*) > 0

-- name: insert_found
-- A content that was skipped (another one had replaced it, or it was gone) and is there again is new again. SQLite would
-- ask the time for each row.
INSERT INTO inbox_file
       (dataset_id, name, content_version, etag, bytes, modified_at, first_seen, seen_seq, status, error)
SELECT :dataset_id, found.name, found.content_version, found.etag, found.bytes, found.modified_at,
       (SELECT tidemill_now()), {commit_seq}, found.status, found.error
  FROM {rows:found(name text, content_version text, etag text, bytes bigint, modified_at bigint, status text, error text)} AS found
 WHERE true
    ON CONFLICT (dataset_id, name, content_version) DO UPDATE
   SET status = excluded.status, error = excluded.error, failures = 0, not_before = 0, alone = 0,
       seen_seq = excluded.seen_seq,
       etag = excluded.etag, checksum = NULL
 WHERE inbox_file.status = 'SKIPPED'

-- name: note_superseded
-- quiet
-- What others remember of their listings may be wrong from here on: a content that is skipped may be there again. Of
-- what this very commit has recorded nothing counts: it is the other content of its name.
UPDATE inbox_marker SET superseded = superseded + 1
 WHERE dataset_id = :dataset_id
   AND EXISTS (SELECT 1
                 FROM {rows:found(name text, content_version text)} AS found
                CROSS JOIN inbox_file AS other
                WHERE other.dataset_id = :dataset_id AND other.name = found.name
                  AND other.content_version <> found.content_version
                  AND coalesce(other.status IN ('NEW', 'ERROR'), FALSE))

-- name: supersede_found
-- locks: inbox_file
-- A content that waits still and is no longer there: it must never be delivered. Where `note_superseded` has counted
-- nothing since this listing began, there is none, and no file is looked up.
-- Here and below, where a list of files is changed, each is looked up by its key. Given a chance (a state or a run
-- that an index could serve, or that PostgreSQL without statistics takes for rare), both databases start from the
-- files in that state and read the whole list for each: 10,000 took minutes. coalesce() hides it from them.
UPDATE inbox_file
   SET status = 'SKIPPED', not_before = 0, run_id = NULL, epoch = NULL,
       error = 'written again before it was processed'
  FROM {rows:found(dataset_id text, name text, content_version text)} AS found
 WHERE (SELECT marker.superseded FROM inbox_marker AS marker WHERE marker.dataset_id = :dataset_id) > :superseded
   AND inbox_file.dataset_id = found.dataset_id AND inbox_file.name = found.name
   AND inbox_file.content_version <> found.content_version AND coalesce(inbox_file.status IN ('NEW', 'ERROR'), FALSE)

-- name: read_marker
-- gives: marker, positions, reconciled_at, superseded, unusable, root, now
SELECT marker.marker, marker.positions, marker.reconciled_at, marker.superseded, marker.unusable, dataset.root,
       tidemill_now() AS now
  FROM inbox_marker AS marker JOIN dataset ON dataset.dataset_id = marker.dataset_id
 WHERE marker.dataset_id = :dataset_id

-- name: move_marker
-- quiet
-- Only from where its listing has found it: another may have come further.
UPDATE inbox_marker SET marker = :marker, positions = :positions, reconciled_at = :reconciled_at
 WHERE dataset_id = :dataset_id AND coalesce(marker, '') = :before AND coalesce(reconciled_at, 0) = :reconciled_before

-- name: count_late
-- quiet
UPDATE inbox_marker
   SET late_files = late_files + :late, missed_files = missed_files + :missed,
       longest_late = CASE WHEN longest_late < :longest THEN :longest ELSE longest_late END
 WHERE dataset_id = :dataset_id

-- name: note_unusable
-- quiet
UPDATE inbox_marker SET unusable = :unusable WHERE dataset_id = :dataset_id

-- name: note_root
-- locks: dataset
-- quiet
UPDATE dataset SET root = :root WHERE dataset_id = :dataset_id AND location = :location

-- name: read_listed
-- gives: reconciled_at, unusable
SELECT reconciled_at, unusable FROM inbox_marker WHERE dataset_id = :dataset_id

-- name: read_lateness
-- gives: late_files, missed_files, longest_late
SELECT late_files, missed_files, longest_late FROM inbox_marker WHERE dataset_id = :dataset_id

-- name: select_absent
-- gives: name, absent_since
-- Closed files in a window of names that a listing of it does not hold; since when, NULL for those it held before.
SELECT name, nullif(min(coalesce(absent_since, 0)), 0) AS absent_since FROM inbox_file
 WHERE dataset_id = :dataset_id AND name > :after AND name <= :bound
   AND status IN ('SUCCESS', 'SKIPPED', 'QUARANTINED', 'IGNORED') AND name NOT IN (SELECT listed.name FROM {rows:listed(name text)} AS listed)
 GROUP BY name ORDER BY name LIMIT :limit

-- name: find_returned
-- gives: name
-- Names in a window that are there again.
SELECT DISTINCT name FROM inbox_file
 WHERE dataset_id = :dataset_id AND name > :after AND name <= :bound AND absent_since IS NOT NULL
   AND name IN (SELECT listed.name FROM {rows:listed(name text)} AS listed)

-- name: note_returned
-- locks: inbox_file
UPDATE inbox_file SET absent_since = NULL WHERE dataset_id = :dataset_id AND name IN ({texts:names})

-- name: note_absent
-- locks: inbox_file
UPDATE inbox_file SET absent_since = tidemill_now()
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND status IN ('SUCCESS', 'SKIPPED', 'QUARANTINED', 'IGNORED')
   AND coalesce(absent_since IS NULL, FALSE)

-- name: forget_absent
-- locks: inbox_file
-- Never what one listing alone did not show: a folder may be away for a while.
DELETE FROM inbox_file
 WHERE dataset_id = :dataset_id AND name IN ({texts:names}) AND status IN ('SUCCESS', 'SKIPPED', 'QUARANTINED', 'IGNORED')
   AND absent_since <= tidemill_now() - :forget_after

-- name: select_due_listings
-- gives: dataset_id, next_listing_at
-- The inboxes without a process in charge, and those of other processes whose charge has ended.
-- SQLite takes neither the order of the join nor the small index of its own accord.
SELECT dataset_id, next_listing_at FROM inbox_marker {indexed_by:inbox_marker_due}
 WHERE in_charge IS NULL AND next_listing_at <= tidemill_now()
   AND (next_listing_at <= tidemill_now() - :lead OR dataset_id IN ({texts:held}))
 UNION ALL
SELECT marker.dataset_id, charge.until AS next_listing_at
  FROM inbox_charge AS charge CROSS JOIN inbox_marker AS marker
 WHERE charge.until <= tidemill_now() - :lead AND charge.process <> :process AND marker.in_charge = charge.process
 ORDER BY next_listing_at LIMIT :limit

-- name: find_listing
-- gives: next_listing_at, in_charge
SELECT coalesce((SELECT charge.until FROM inbox_charge AS charge WHERE charge.process = marker.in_charge),
                marker.next_listing_at) AS next_listing_at,
       marker.in_charge
  FROM inbox_marker AS marker WHERE marker.dataset_id = :dataset_id

-- name: select_listings
-- gives: dataset_id, next_listing_at
SELECT marker.dataset_id,
       coalesce((SELECT charge.until FROM inbox_charge AS charge WHERE charge.process = marker.in_charge),
                marker.next_listing_at) AS next_listing_at
  FROM inbox_marker AS marker ORDER BY marker.dataset_id

-- name: take_listing
-- gives: next_listing_at
-- quiet
-- The process that moves the time lists the folder. A time in the future wakes no process. If another process moves the
-- time at this moment, there is nothing to wait for.
UPDATE inbox_marker SET next_listing_at = tidemill_now() + :interval, in_charge = :process
 WHERE dataset_id = (SELECT due.dataset_id FROM inbox_marker AS due
                      WHERE due.dataset_id = :dataset_id
                        AND coalesce((SELECT charge.until FROM inbox_charge AS charge
                                       WHERE charge.process = due.in_charge),
                                     due.next_listing_at) = :next_listing_at {skip_locked})
RETURNING next_listing_at

-- name: hold_charge
-- quiet
INSERT INTO inbox_charge (process, until) VALUES (:process, tidemill_now() + :interval)
    ON CONFLICT (process) DO UPDATE SET until = excluded.until

-- name: end_charge
-- wakes: time
-- A process that ends leaves its inboxes to the others at once.
UPDATE inbox_charge SET until = tidemill_now() WHERE process = :process

-- name: delete_ended_charges
-- quiet
-- An inbox of a process that has ended stays due by the row, until another process takes the inbox.
DELETE FROM inbox_charge
 WHERE until <= tidemill_now()
   AND NOT EXISTS (SELECT 1 FROM inbox_marker AS marker WHERE marker.in_charge = inbox_charge.process)

-- name: select_held
-- gives: dataset_id
SELECT dataset_id FROM inbox_marker WHERE in_charge = :process

-- name: have_listed
-- Wakes the process that lists, whichever has charge of the inbox.
UPDATE inbox_marker SET next_listing_at = tidemill_now(), in_charge = NULL WHERE dataset_id = :dataset_id

-- name: select_next_listing
-- gives: next_listing_at
SELECT min(found.next_listing_at) AS next_listing_at
  FROM (SELECT min(next_listing_at) AS next_listing_at FROM inbox_marker
         WHERE in_charge IS NULL AND dataset_id NOT IN ({texts:left})
         UNION ALL
        SELECT min(charge.until) FROM inbox_charge AS charge
         WHERE charge.process <> :process
           AND EXISTS (SELECT 1 FROM inbox_marker AS marker
                        WHERE marker.in_charge = charge.process AND marker.dataset_id NOT IN ({texts:left}))) AS found
