"""What a consumer of a table has read, and what it can read next."""
