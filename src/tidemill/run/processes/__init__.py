"""Processes: runner, drivers, workers, Spark sessions, and callers outside."""
