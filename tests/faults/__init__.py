"""Seeded faults: one task run makes one commit, whichever process is killed or frozen at any point."""
