"""A small project to begin with, as `tidemill init` writes it."""
