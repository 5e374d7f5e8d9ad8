from __future__ import annotations

HUDI_RELEASES = ("0.15.0", "1.0.2", "1.1.1", "1.2.0")
"""The releases of Hudi that the rigs, the logs and the tables are of."""
