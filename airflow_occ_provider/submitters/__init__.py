"""Submitters: each starts a driver in its own way, follows it and ends it."""
