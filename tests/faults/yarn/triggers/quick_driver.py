"""The driver's trigger with a tenth of its patience; the triggerer imports it from ``PYTHONPATH``."""

from __future__ import annotations

from airflow_occ_provider.triggers import driver

driver._POLL_S = 2.0
driver._UNSEEN_S = 30.0


class QuickDriverTrigger(driver.HudiDriverTrigger):
    """Fires ``unseen`` after half a minute, not ten."""
