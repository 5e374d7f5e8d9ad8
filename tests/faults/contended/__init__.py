"""Seeded faults while several tasks write one hot partition, with early stop: each commits once."""
