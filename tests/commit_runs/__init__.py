"""One DAG run per commit, over triggerers that are killed: ``python -m tests.commit_runs``."""
