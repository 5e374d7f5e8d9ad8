"""Shapes of ordinary PySpark jobs, run plainly and through ``HudiWriteOperator`` on real Hudi."""
