"""The pages in Airflow's own UI: a table's writers, its queue and its dead writers."""
