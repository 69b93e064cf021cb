-- Which run was told that a partition was given up: one that has committed, and no other.
ALTER TABLE consumer_work ADD COLUMN told_by TEXT;
CREATE INDEX consumer_work_untold ON consumer_work (consumer_id, write_pointer)
    WHERE state = 'discarded' AND told_by IS NULL;
