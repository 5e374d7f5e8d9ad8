"""Seeded faults: one task run, one commit, whatever is killed or frozen when."""
