-- Listings that begin behind a marker, look back, and are reconciled; positions of the marker by time, as JSON.
ALTER TABLE inbox_marker DROP COLUMN lookback_from;
ALTER TABLE inbox_marker ADD COLUMN positions TEXT NOT NULL DEFAULT '[]';
-- Raised by who replaces a content that still waits: what others remember of their listings may be wrong from then on.
ALTER TABLE inbox_marker ADD COLUMN superseded BIGINT NOT NULL DEFAULT 0;
-- Found by the lookback; found by a reconciliation alone; the longest that one was late, milliseconds.
ALTER TABLE inbox_marker ADD COLUMN late_files BIGINT NOT NULL DEFAULT 0;
ALTER TABLE inbox_marker ADD COLUMN missed_files BIGINT NOT NULL DEFAULT 0;
ALTER TABLE inbox_marker ADD COLUMN longest_late BIGINT NOT NULL DEFAULT 0;
