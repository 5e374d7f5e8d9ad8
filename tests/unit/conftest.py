"""A table made by hand, of timeline layout 2."""

from __future__ import annotations

import pytest

from airflow_occ_provider.storage.table import HudiTable

PROPERTIES = "hoodie.table.name=t\nhoodie.timeline.layout.version=2\n"


@pytest.fixture
def folder(tmp_path):
    metadata = tmp_path / "t" / ".hoodie"
    (metadata / "timeline" / "history").mkdir(parents=True)
    (metadata / ".heartbeat").mkdir()
    (metadata / "hoodie.properties").write_text(PROPERTIES)
    return metadata


@pytest.fixture
def table(folder):
    return HudiTable(str(folder.parent))
