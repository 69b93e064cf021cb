-- name: find_request
-- gives: digest, attempt, part, answer
SELECT digest, attempt, part, answer FROM request_key WHERE caller = :caller AND request_key = :request_key

-- name: insert_request
INSERT INTO request_key (caller, request_key, digest, attempt, at)
VALUES (:caller, :request_key, :digest, 1, tidemill_now())

-- name: take_over
-- An answer that came after the look is not taken over.
UPDATE request_key SET attempt = attempt + 1
 WHERE caller = :caller AND request_key = :request_key AND attempt = :attempt AND answer IS NULL

-- name: forget_request
-- A part is a change: its repetition goes on from there.
DELETE FROM request_key
 WHERE caller = :caller AND request_key = :request_key AND attempt = :attempt
   AND answer IS NULL AND part IS NULL

-- name: forget_old_requests
DELETE FROM request_key WHERE at < tidemill_now() - :keep
