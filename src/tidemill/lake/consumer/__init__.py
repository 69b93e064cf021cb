"""Consumers: which changes somebody has not seen yet, and who works on which (seed 000)."""
