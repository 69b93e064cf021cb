-- What becomes of a file after the commit that processed it: of the next ones as the inbox says, NULL for nothing.
ALTER TABLE inbox_marker ADD COLUMN afterwards TEXT CHECK (afterwards IN ('archive', 'delete'));
ALTER TABLE inbox_marker ADD COLUMN archive TEXT;

-- Of each file: the intent, written with SUCCESS; then what came of it, and where it is. leave_at is when the janitor
-- looks, NULL when there is nothing to do.
ALTER TABLE inbox_file ADD COLUMN afterwards TEXT
    CHECK (afterwards IN ('archive', 'delete', 'archived', 'deleted', 'replaced', 'gone'));
ALTER TABLE inbox_file ADD COLUMN archive TEXT;
ALTER TABLE inbox_file ADD COLUMN leave_at BIGINT;
CREATE INDEX inbox_file_leaving ON inbox_file (leave_at) WHERE leave_at IS NOT NULL;
