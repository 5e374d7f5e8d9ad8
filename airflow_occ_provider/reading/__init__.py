"""What people and pipelines read of a table; no write needs it."""
