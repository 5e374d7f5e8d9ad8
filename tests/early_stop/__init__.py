"""What early stop foresees, compared with what Hudi then does: ``python -m tests.early_stop``."""
