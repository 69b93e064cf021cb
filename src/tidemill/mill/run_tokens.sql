-- name: find_attempt
-- gives: run_id, epoch, token_digest, program_id, write_pointer
-- Of a run that is to be killed the token has ended, though its process may still live for a moment.
SELECT run_id, epoch, token_digest, program_id, write_pointer FROM run
 WHERE run_id = :run_id AND state = 'RUNNING' AND token_digest IS NOT NULL AND program_id IS NOT NULL
