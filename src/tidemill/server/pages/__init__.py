"""Pages: views of facade records for people, made on the server, and readable without JavaScript."""
