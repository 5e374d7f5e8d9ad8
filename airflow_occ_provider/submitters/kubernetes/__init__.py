"""Drivers in pods of Kubernetes."""

from __future__ import annotations
