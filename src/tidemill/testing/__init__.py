"""A test kit: a project with a catalog in memory and a virtual clock, whose processes run in the test."""
