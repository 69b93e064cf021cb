"""Snapshots: data sets that mirror a source whole, one version a refresh (seed 002)."""
