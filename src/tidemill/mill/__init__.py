"""The facade: all operations of a project, one file a noun."""
