"""Consumers: the changes that each consumer has not taken yet, and the runs that hold claims (seed 000)."""
