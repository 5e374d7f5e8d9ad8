"""One attempt at a Spark write, whoever submits it: prepare, watch, settle."""

from __future__ import annotations
