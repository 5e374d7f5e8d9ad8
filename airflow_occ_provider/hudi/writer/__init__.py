"""What a concurrent writer is given, how it shows that it is alive, and what it leaves behind."""

from __future__ import annotations
