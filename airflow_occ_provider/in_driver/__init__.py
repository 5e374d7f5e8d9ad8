"""Code that runs inside the Spark driver; needs the standard library and PySpark."""
