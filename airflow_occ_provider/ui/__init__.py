"""The pages in Airflow's own UI: a table's writers, queue and dead writers."""
