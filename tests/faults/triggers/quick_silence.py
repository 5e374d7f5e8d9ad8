"""Drivers elsewhere whose silence of 70 s proves their end, where a quarter of an hour does.

Their task and the triggerer import it from ``PYTHONPATH``.
"""

from __future__ import annotations

from airflow_occ_provider.attempts import submission
from airflow_occ_provider.submitters import folder_driver, followed_driver
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.triggers import driver

LIFE_S, REQUEST_S = 60.0, 5.0
submission.LIFE_S = followed_driver.LIFE_S = folder_driver.LIFE_S = LIFE_S
Place.request_s = folder_driver.REQUEST_S = REQUEST_S
driver._POLL_S = 2.0


class QuickDriverTrigger(driver.HudiDriverTrigger):
    """Knows of such drivers."""
