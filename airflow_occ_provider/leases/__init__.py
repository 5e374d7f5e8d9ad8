"""The queue of a table's writers: rules, service protocol and stores."""

from __future__ import annotations
