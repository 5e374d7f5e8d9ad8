"""The object stores for tests that not each machine can run."""

from __future__ import annotations

import pytest

from tests.services.azurite import EmbeddedAzurite
from tests.services.fake_gcs import EmbeddedFakeGcs
from tests.services.versitygw import EmbeddedVersitygw

NEEDS_NODE = pytest.mark.skipif(
    not EmbeddedAzurite.is_available(), reason="node or npm, which Azurite needs, is missing"
)
NEEDS_GO = pytest.mark.skipif(
    not EmbeddedFakeGcs.is_available(), reason="Go, which builds fake-gcs-server, is missing"
)
NEEDS_VERSITYGW = pytest.mark.skipif(
    not EmbeddedVersitygw.is_available(), reason="Go, which builds versitygw, is missing"
)
CLOUDS = [
    pytest.param(EmbeddedAzurite, marks=NEEDS_NODE, id="azure"),
    pytest.param(EmbeddedFakeGcs, marks=NEEDS_GO, id="gcs"),
]
