"""``hoodie.properties`` of tables that tests make by hand, as Hudi writes them."""

from __future__ import annotations

from airflow_occ_provider.hudi.format.properties import table_checksum


def table_properties(*, version: int = 9, layout: int = 2, **more: str) -> str:
    """Return the text of the file.

    :param more: further or other properties, without ``hoodie.``; ``__`` in a name means a dot.
    """
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": str(layout),
        **{f"hoodie.{name.replace('__', '.')}": value for name, value in more.items()},
    }
    properties.setdefault("hoodie.table.checksum", table_checksum(properties))
    written = (f"{key}={_escaped(value)}" for key, value in properties.items())
    lines = ["#Updated at 2026-11-21T00:00:00Z", *written]
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
