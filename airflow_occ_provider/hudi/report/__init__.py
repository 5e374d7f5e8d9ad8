"""Pure: what concurrent writing has cost a table, by its timeline alone."""
