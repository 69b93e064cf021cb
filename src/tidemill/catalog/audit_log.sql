-- name: add_entry
-- A repeated call finds its own entry, and changes nothing.
INSERT INTO audit (audit_id, at, actor, action, subject, detail)
VALUES (:audit_id, tidemill_now(), :actor, :action, :subject, :detail)
    ON CONFLICT (audit_id) DO NOTHING

-- name: list_entries
-- gives: audit_id, at, actor, action, subject, detail
SELECT audit_id, at, actor, action, subject, detail
  FROM audit WHERE audit_id < :before ORDER BY audit_id DESC LIMIT :limit

-- name: list_entries_of
-- gives: audit_id, at, actor, action, subject, detail
SELECT audit_id, at, actor, action, subject, detail
  FROM audit WHERE subject = :subject AND audit_id < :before ORDER BY audit_id DESC LIMIT :limit

-- name: list_entries_by
-- gives: audit_id, at, actor, action, subject, detail
SELECT audit_id, at, actor, action, subject, detail
  FROM audit WHERE actor = :actor AND audit_id < :before ORDER BY audit_id DESC LIMIT :limit

-- name: list_entries_of_by
-- gives: audit_id, at, actor, action, subject, detail
-- The changes of one subject, of which an actor made some. (The expression keeps both databases on the index of subjects.)
SELECT audit_id, at, actor, action, subject, detail
  FROM audit WHERE subject = :subject AND audit_id < :before AND actor || '' = :actor ORDER BY audit_id DESC LIMIT :limit

-- name: find_entry
-- gives: audit_id
SELECT audit_id FROM audit WHERE audit_id = :audit_id

-- name: list_old_entries
-- gives: audit_id
-- Ids are in about the order of time: a look at the first of them, and no index of times.
SELECT first.audit_id
  FROM (SELECT audit_id, at FROM audit ORDER BY audit_id LIMIT :most) AS first
 WHERE first.at < tidemill_now() - :keep

-- name: delete_entries
DELETE FROM audit WHERE audit_id IN ({texts:audit_ids})
