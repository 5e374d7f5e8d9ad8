"""What runs inside the Spark driver: it imports the standard library and PySpark only."""
