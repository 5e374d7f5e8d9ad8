"""What a table's metadata shows of writers that are not safe beside each other."""
