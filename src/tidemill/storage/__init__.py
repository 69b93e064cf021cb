"""Bytes by URL: one interface over local folders and object stores."""
