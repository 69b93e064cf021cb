"""File sets: partitions in files, added in transactions, read as one snapshot shows them (seed 000)."""
