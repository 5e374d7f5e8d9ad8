"""The contract of a driver and its attempt: what each of them does next; pure."""
