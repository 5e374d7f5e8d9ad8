"""One attempt at a Spark job, without Airflow: its journal, steps, guards and verdict."""
