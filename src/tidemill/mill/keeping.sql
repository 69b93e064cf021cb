-- name: keep_answer
UPDATE request_key SET answer = :answer
 WHERE caller = :caller AND request_key = :request_key AND attempt = :attempt AND answer IS NULL

-- name: keep_part
UPDATE request_key SET part = :part
 WHERE caller = :caller AND request_key = :request_key AND attempt = :attempt AND answer IS NULL

-- name: refuse_if_taken_over
-- The lock: a try that began between this statement and the next would make the change too.
SELECT tidemill_refuse('request_taken_over', CAST(:request_key AS TEXT))
 WHERE NOT EXISTS (SELECT 1 FROM request_key
                    WHERE caller = :caller AND request_key = :request_key AND attempt = :attempt AND answer IS NULL
                      {for_update})
