"""Inboxes: raw files that others write, each of them processed exactly once (seed 004)."""
