-- Whether a run's program needs Spark, as it was declared when the run was made: while runs wait in a runner for a start
-- of Spark, the runner takes others only, and must not read past thousands that would wait too.
ALTER TABLE run ADD COLUMN spark INTEGER NOT NULL DEFAULT 0;
UPDATE run SET spark = 1
 WHERE state = 'PENDING' AND program_id IN (SELECT program_id FROM program WHERE kind = 'spark');
CREATE INDEX run_pending_plain ON run (priority DESC, came_at, created_at, run_id) WHERE state = 'PENDING' AND spark = 0;
