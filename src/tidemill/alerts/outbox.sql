-- name: put_delivery
-- The first that waits for its target is tried at once; the others get their time when they are the first. n orders the
-- deliveries of one transaction to a target.
INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, next_try_at)
SELECT :delivery_id, :target, :seq,
       (SELECT coalesce(max(n) + 1, 0) FROM delivery WHERE target = :target AND state = 'WAITING' AND seq = :seq),
       :about, :event, :body, 'WAITING', tidemill_now(),
       CASE WHEN EXISTS (SELECT 1 FROM delivery WHERE target = :target AND state = 'WAITING')
            THEN NULL ELSE tidemill_now() END

-- name: list_due
-- gives: target
-- Of a target, one delivery has a time.
SELECT target FROM delivery WHERE next_try_at <= tidemill_now() ORDER BY next_try_at LIMIT :limit

-- name: find_due
-- gives: delivery_id, target, about, event, body, attempt, made_at
SELECT delivery_id, target, about, event, body, attempt, made_at FROM delivery
 WHERE target = :target AND state = 'WAITING' AND next_try_at <= tidemill_now() ORDER BY seq, n LIMIT 1

-- name: find_next_try
-- gives: next_try_at
SELECT min(next_try_at) AS next_try_at FROM delivery WHERE next_try_at > tidemill_now()

-- name: begin_try
-- Fences other senders, and the earlier tries of this one.
UPDATE delivery SET attempt = attempt + 1, next_try_at = :next_try_at
 WHERE delivery_id = :delivery_id AND attempt = :attempt AND next_try_at <= tidemill_now()

-- name: try_again
UPDATE delivery SET next_try_at = :next_try_at, error = :error
 WHERE delivery_id = :delivery_id AND attempt = :attempt AND state = 'WAITING'

-- name: end_delivery
UPDATE delivery SET state = :state, error = :error, next_try_at = NULL, ended_at = tidemill_now()
 WHERE delivery_id = :delivery_id AND attempt = :attempt AND state = 'WAITING'

-- name: start_next
-- gives: delivery_id
UPDATE delivery SET next_try_at = tidemill_now()
 WHERE delivery_id = (SELECT delivery_id FROM delivery WHERE target = :target AND state = 'WAITING'
                       ORDER BY seq, n LIMIT 1)
   AND next_try_at IS NULL
RETURNING delivery_id

-- name: revive
-- The next of its target; the time comes with the end of the delivery under way.
UPDATE delivery
   SET state = 'WAITING', ended_at = NULL,
       next_try_at = CASE WHEN EXISTS (SELECT 1 FROM delivery AS other
                                        WHERE other.target = delivery.target AND other.state = 'WAITING')
                          THEN NULL ELSE tidemill_now() END
 WHERE delivery_id = :delivery_id AND state = 'DEAD'

-- name: find_state
-- gives: state
SELECT state FROM delivery WHERE delivery_id = :delivery_id

-- name: find_about
-- gives: about
SELECT about FROM delivery WHERE delivery_id = :delivery_id

-- name: list_newest
-- gives: delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at
SELECT delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at FROM delivery
 WHERE delivery_id < :after ORDER BY delivery_id DESC LIMIT :limit

-- name: list_newest_in_state
-- gives: delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at
SELECT delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at FROM delivery
 WHERE state = :state AND delivery_id < :after ORDER BY delivery_id DESC LIMIT :limit

-- name: list_newest_about
-- gives: delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at
SELECT delivery_id, target, about, event, state, attempt, error, made_at, next_try_at, ended_at FROM delivery
 WHERE about = :about AND (:state = '' OR state = :state) AND delivery_id < :after
 ORDER BY delivery_id DESC LIMIT :limit

-- name: forget_old
DELETE FROM delivery WHERE ended_at < tidemill_now() - :keep
