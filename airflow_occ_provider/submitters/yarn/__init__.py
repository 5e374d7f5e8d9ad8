"""Drivers in YARN's cluster mode, by ``spark-submit`` and YARN's REST interfaces."""

from __future__ import annotations
