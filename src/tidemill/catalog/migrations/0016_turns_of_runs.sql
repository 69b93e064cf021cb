-- When the work of a run came: runs that are due go by priority, then by this time, however often they were tried.
ALTER TABLE run ADD COLUMN came_at BIGINT NOT NULL DEFAULT 0;
UPDATE run SET came_at = created_at;
DROP INDEX run_pending;
CREATE INDEX run_pending ON run (priority DESC, came_at, created_at, run_id) WHERE state = 'PENDING';
CREATE INDEX run_retry ON run (not_before) WHERE state = 'PENDING' AND not_before > 0;
CREATE INDEX run_deadline ON run (deadline, run_id) WHERE state = 'PENDING' AND deadline IS NOT NULL;

-- From when a timer of `Every` counts; none for `Cron`. A time to come says that the clock was set back since.
ALTER TABLE timer ADD COLUMN counted_from BIGINT;
CREATE INDEX timer_counted ON timer (counted_from) WHERE counted_from IS NOT NULL;
