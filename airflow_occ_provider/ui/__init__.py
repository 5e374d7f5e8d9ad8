"""The page in Airflow's own UI: who writes a table, who waits, who died."""
