"""Tidemill runs your PySpark programs when the data has arrived, and makes every run one transaction."""
