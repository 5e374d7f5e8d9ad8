"""The pages of this provider in Airflow's UI."""
