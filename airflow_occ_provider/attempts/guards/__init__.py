"""The guards that may stop a running driver: heartbeat, lease, second table."""
