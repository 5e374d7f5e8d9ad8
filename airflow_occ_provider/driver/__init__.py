"""The contract between a Spark driver and its attempt; pure, and not in use yet."""
