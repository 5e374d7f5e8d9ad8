"""One attempt at a Spark job, without Airflow: journal, steps, guards, outcome."""
