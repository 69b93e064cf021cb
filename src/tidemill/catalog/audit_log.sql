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
