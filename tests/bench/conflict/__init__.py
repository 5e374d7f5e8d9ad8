"""What lost conflicts cost: real Spark writers of one real Hudi table, run in six ways."""
