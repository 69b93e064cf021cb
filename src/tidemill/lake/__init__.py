"""Data sets: what was published, what was consumed."""
