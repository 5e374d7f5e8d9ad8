"""What tests put in the place of a module's functions, seen by one module of the package alone.

``monkeypatch.setattr(module.time, "sleep", ...)`` changes the ``time`` of the whole process: a thread
that another test left behind then sleeps by that function too.
"""

from __future__ import annotations

from types import SimpleNamespace


def only_in(monkeypatch, module, name, **functions):
    """Let a module see an imported one with some other functions; all others see it as it is."""
    monkeypatch.setattr(module, name, SimpleNamespace(**(vars(getattr(module, name)) | functions)))
