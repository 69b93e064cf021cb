"""Upkeep: what looks after a catalog as a whole: audit, comparison with storage, backup and restore."""
