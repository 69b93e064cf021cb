"""Watermarks and windows: up to when a file set is complete, and what is computed of it (seed 003)."""
