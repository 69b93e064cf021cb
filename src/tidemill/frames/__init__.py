"""Spark's data frames: read from data sets and raw files, checked, and written into directories."""
