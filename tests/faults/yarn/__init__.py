"""Seeded faults in YARN's cluster mode: one commit and never two drivers, whatever is lost."""
