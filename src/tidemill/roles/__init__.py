"""Roles: the loops of `tidemill up`, each a thread over a step."""
