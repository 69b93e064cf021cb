"""Apps: the declarations of users, and their deployment."""
