-- name: find_delivery
-- gives: seq, n
SELECT seq, n FROM hook_delivery WHERE hook = :hook AND delivery = :delivery

-- name: insert_delivery
-- The tick is held: no other delivery comes between the look and this row.
INSERT INTO hook_delivery (hook, delivery, seq, n, at) VALUES (:hook, :delivery, :seq, :n, tidemill_now())

-- name: forget_deliveries
-- Each delivery takes some of the old ones away, so that the table does not grow with the past.
DELETE FROM hook_delivery WHERE (hook, delivery) IN (
    SELECT hook, delivery FROM hook_delivery WHERE at < tidemill_now() - :known ORDER BY at LIMIT 100)
