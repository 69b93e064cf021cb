"""The server: REST, pages and live events of a project, by its facade alone."""
