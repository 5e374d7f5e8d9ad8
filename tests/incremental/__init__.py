"""Incremental reads of a table that concurrent writers change: ``python -m tests.incremental``."""
