from __future__ import annotations

from unittest.mock import patch

import pytest
from airflow.sdk import conf

from airflow_occ_provider.triggers.base import earliest_s


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 30.0])
def test_a_trigger_fires_after_the_supervisor_has_noticed_the_end_of_the_task(interval_s):
    earliest_s.cache_clear()
    with patch.object(conf, "getfloat", lambda *_, **__: interval_s):
        assert earliest_s() > interval_s
    earliest_s.cache_clear()
