-- name: insert_token
-- quiet
INSERT INTO token (token_id, kind, name, prefix, digest, role, namespace, created_at, created_by, opened_by,
                   expires_at)
VALUES (:token_id, :kind, :name, :prefix, :digest, :role, :namespace, tidemill_now(), :created_by, :opened_by,
        :expires_at)

-- name: find_by_prefix
-- gives: token_id, kind, name, digest, role, namespace, last_used_at
-- A session lives as long as the token that opened it.
SELECT token_id, kind, name, digest, role, namespace, last_used_at
  FROM token
 WHERE prefix = :prefix AND ended_at IS NULL AND (expires_at IS NULL OR expires_at > tidemill_now())
   AND (opened_by IS NULL
        OR EXISTS (SELECT 1 FROM token AS opener
                    WHERE opener.token_id = token.opened_by AND opener.ended_at IS NULL
                      AND (opener.expires_at IS NULL OR opener.expires_at > tidemill_now())))

-- name: list_live
-- gives: token_id, lives_for
-- Those by which callers are still let in, and how long yet: a session ends with itself or with its token, a run's own
-- token with its attempt.
SELECT token.token_id,
       CASE WHEN opener.expires_at IS NULL OR token.expires_at < opener.expires_at
            THEN token.expires_at ELSE opener.expires_at END - tidemill_now() AS lives_for
  FROM token LEFT JOIN token AS opener ON opener.token_id = token.opened_by
 WHERE token.token_id IN ({texts:token_ids})
   AND token.ended_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > tidemill_now())
   AND (token.opened_by IS NULL
        OR (opener.token_id IS NOT NULL AND opener.ended_at IS NULL
            AND (opener.expires_at IS NULL OR opener.expires_at > tidemill_now())))
 UNION ALL
SELECT run_id || '.' || CAST(epoch AS TEXT), CAST(NULL AS BIGINT)
  FROM run WHERE run_id IN ({texts:runs}) AND state = 'RUNNING'

-- name: find_by_name
-- gives: token_id, role, namespace
SELECT token_id, role, namespace FROM token WHERE kind = 'token' AND name = :name AND ended_at IS NULL

-- name: find_ended
-- gives: token_id
SELECT token_id FROM token WHERE kind = 'token' AND name = :name AND ended_at IS NOT NULL LIMIT 1

-- name: list_tokens
-- gives: name, prefix, role, namespace, created_at, created_by, expires_at, last_used_at, ended_at, token_id
SELECT name, prefix, role, namespace, created_at, created_by, expires_at, last_used_at, ended_at, token_id
  FROM token
 WHERE kind = 'token' AND (name, token_id) > (:after_name, :after_id)
   AND (:namespace = '' OR namespace = :namespace) AND (:role = '' OR role = :role)
 ORDER BY name, token_id LIMIT :limit

-- name: end_token
-- It wakes: each server ends the streams of the token.
UPDATE token SET ended_at = tidemill_now() WHERE token_id = :token_id AND ended_at IS NULL

-- name: note_use
-- quiet
UPDATE token SET last_used_at = :last_used_at
 WHERE token_id = :token_id AND (last_used_at IS NULL OR last_used_at < :last_used_at)

-- name: delete_expired
-- quiet
-- Sessions and codes leave nothing behind; ended tokens stay listed.
DELETE FROM token WHERE kind <> 'token' AND expires_at < tidemill_now()
