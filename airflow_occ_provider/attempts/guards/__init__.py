"""What may stop a running driver: its heartbeat, its lease, a second table."""
