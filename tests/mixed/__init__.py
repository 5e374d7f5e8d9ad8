"""Writers of several releases of Hudi on one table."""
