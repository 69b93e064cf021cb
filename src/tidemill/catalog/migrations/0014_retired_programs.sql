-- The app does not declare the program any more: its runs and its consumers stay, and nothing starts it.
ALTER TABLE program ADD COLUMN retired INTEGER NOT NULL DEFAULT 0 CHECK (retired IN (0, 1));
