-- name: give_all
-- gives: write_pointer, run_id, state, at, lease, own, late, facts, manifest, ended_at
SELECT CAST(:write_pointer AS BIGINT) AS write_pointer, CAST(:run_id AS TEXT) AS run_id, CAST(:state AS TEXT) AS state,
       CAST(:at AS BIGINT) AS at, CAST(:lease AS BIGINT) AS lease, CAST(:own AS BIGINT) AS own,
       CAST(:late AS TEXT) AS late, CAST(:facts AS TEXT) AS facts, CAST(:manifest AS {blob}) AS manifest,
       CAST(:ended_at AS BIGINT) AS ended_at

-- name: give_pairs
-- gives: name, number
SELECT name, number FROM {rows:rows(name text, number bigint)} AS r

-- name: give_names
-- gives: name
SELECT name FROM {rows:rows(name text, number bigint)} AS r

-- name: give_least
-- gives: number
SELECT min(number) AS number FROM {rows:rows(name text, number bigint)} AS r

-- name: give_sum
-- gives: number
SELECT sum(number) AS number FROM {rows:rows(name text, number bigint)} AS r
