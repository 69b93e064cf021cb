"""Programs and runs: from a run record to a committed result."""
