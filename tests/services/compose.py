"""``docker/compose.yaml`` as Compose reads it, and what its services run outside of containers."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+):\?([^}]+)\}|)")


def fetched_jars() -> dict[str, Any]:
    """Return the constants of ``docker/fetch_jars.py``, by name."""
    return runpy.run_path(str(DOCKER / "fetch_jars.py"))


def required_variables(text: str) -> set[str]:
    """Return the variables that the file takes from its environment; no other form is known here."""
    return {name for _, name, _ in _VARIABLE.findall(text) if name}


def load(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file with its variables filled in; each has a value of its own by default."""
    text = (DOCKER / "compose.yaml").read_text()

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        assert match[2], f"{text[match.start() : match.start() + 30]!r}: not a required variable"
        return environment[match[2]] if environment else f"value-of-{match[2].lower()}"

    return yaml.safe_load(_VARIABLE.sub(value, text))


def environment_of(service: Mapping[str, Any], swaps: Mapping[str, str]) -> dict[str, str]:
    """Return a service's variables as they are outside of its container."""
    return {name: swap(str(value), swaps) for name, value in service.get("environment", {}).items()}


def command_of(service: Mapping[str, Any], swaps: Mapping[str, str]) -> list[str]:
    """Return a service's command as it is outside of its container."""
    return [swap(word, swaps) for word in service["command"]]


def check_of(service: Mapping[str, Any], swaps: Mapping[str, str]) -> list[str]:
    """Return a service's health check as it is outside of its container."""
    kind, *words = service["healthcheck"]["test"]
    assert kind == "CMD"
    return [swap(word, swaps) for word in words]


def swap(text: str, swaps: Mapping[str, str]) -> str:
    """Replace the containers' addresses and paths by those of this machine, all at once."""
    if not swaps:
        return text
    inside = "|".join(map(re.escape, sorted(swaps, key=len, reverse=True)))
    return re.sub(inside, lambda match: swaps[match[0]], text)
