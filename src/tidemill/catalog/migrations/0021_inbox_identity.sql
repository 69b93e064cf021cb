-- Names in the inbox that can never be processed, as the last whole listing saw them: JSON, [reason, number, example].
ALTER TABLE inbox_marker ADD COLUMN unusable TEXT NOT NULL DEFAULT '[]';

-- Since when a reconciliation has not found the name of a closed file; NULL while the name is there.
ALTER TABLE inbox_file ADD COLUMN absent_since BIGINT;
-- Of the content that was processed: tells it from another one of equal size and time. NULL where nobody has read it.
ALTER TABLE inbox_file ADD COLUMN checksum TEXT;
