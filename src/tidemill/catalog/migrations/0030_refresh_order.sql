-- Refreshes of a snapshot are ordered by (order_time, write_pointer); the greatest is current. logical_time is the time
-- of the schedule for which a refresh runs. order_time is fixed at begin: see refresh_order.sql. Times are epoch
-- milliseconds; NULL is below all of them.
ALTER TABLE in_progress ADD COLUMN logical_time BIGINT;
ALTER TABLE in_progress ADD COLUMN order_time BIGINT;
ALTER TABLE partition_change ADD COLUMN logical_time BIGINT;
ALTER TABLE partition_change ADD COLUMN order_time BIGINT;
-- The transaction of a run's first attempt.
ALTER TABLE run ADD COLUMN first_write_pointer BIGINT;
