"""The queue of a table's writers: its rules, its service, its stores."""

from __future__ import annotations
