-- The process of the runner that has taken a run: its boot, its container, its id and its start. A runner on the same
-- machine that finds this process ended fences the run at once, without waiting for its lease.
ALTER TABLE run ADD COLUMN owner_process TEXT;
