"""The SQL database that says what is true: one clock, transactions, messages; SQLite or PostgreSQL."""
