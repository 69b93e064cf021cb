-- A time trigger whose schedule wants every missed fire has one at a time in a job: `behind` is the job whose end it
-- waits for before the next. Such a timer is not looked at when it is due, so it is not in the index of due ones.
ALTER TABLE timer ADD COLUMN behind TEXT;
DROP INDEX timer_due;
CREATE INDEX timer_due ON timer (next_fire_at) WHERE behind IS NULL;
CREATE INDEX timer_behind ON timer (behind) WHERE behind IS NOT NULL;
