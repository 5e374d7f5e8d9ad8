"""Make the pictures of a report, of a recorded table: ``.venv/bin/python docs/images/report.py``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from airflow_occ_provider.hudi.format.instant import naive_ms  # noqa: E402
from airflow_occ_provider.reading.doctor import examine  # noqa: E402
from airflow_occ_provider.reading.report import report  # noqa: E402
from airflow_occ_provider.reading.report_page import render  # noqa: E402
from airflow_occ_provider.reading.report_text import describe_report, span_ms  # noqa: E402
from airflow_occ_provider.storage.table import HudiTable  # noqa: E402
from tests.golden.table_archive import FOLDER, unpack  # noqa: E402
from tests.pages.browser import chromium  # noqa: E402

SIZES = {"light": (1000, 1150), "dark": (420, 900)}


def main() -> None:
    """Photograph the report, light on a screen and dark on a phone."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        table = HudiTable(str(unpack(FOLDER / "1.2.0" / "lost_writes.zip", Path(folder))))
        first_ms = naive_ms(table.snapshot().timeline.instants[0].time) or 0
        described = describe_report(report(table, first_ms - span_ms("30d"), examine(table)))
        page = Path(folder, "report.html")
        page.write_text(render([{**described, "table": "s3a://lake/trips"}]))
        for scheme, (width, height) in SIZES.items():
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": height}
            )
            screen = context.new_page()
            screen.goto(page.as_uri())
            screen.screenshot(path=Path(__file__).with_name(f"report_{scheme}.png"))


if __name__ == "__main__":
    main()
