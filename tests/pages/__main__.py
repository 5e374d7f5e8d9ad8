"""``python -m tests.pages --manager simple --pictures build/pages``: the pages in a real browser.

Real tasks write one real table in a real Airflow on PostgreSQL; a headless Chromium shows its page
meanwhile. It prints how long after each fact the page showed it; the exit code is 0 if that was within
the bound, and each user got each route or none.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.pages.browser import chromium, sign_in
from tests.pages.codes import wrong_codes
from tests.pages.rig import MANAGERS, running
from tests.pages.scenario import Scenario

MOST_S = 15.0


def main() -> int:
    """Run it; return 1 if a page was late or wrong."""
    arguments = _arguments()
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_pages_"))
    try:
        with (
            EmbeddedStack(folder / "stack") as stack,
            running(folder / "airflow", stack, arguments.manager) as airflow,
            chromium() as browser,
        ):
            screens = {one: sign_in(browser, airflow, "admin", one) for one in ("light", "dark")}
            scenario = Scenario(airflow, stack, folder, screens, arguments.pictures)
            scenario.play()
            codes = wrong_codes(airflow, scenario.key, scenario.load_run, arguments.manager)
            errors = [error for one in screens.values() for error in one.errors]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    late = [what for what, delay_s in scenario.delays_s.items() if delay_s > MOST_S]
    wrong = [f"{what}: later than {MOST_S:.0f} s" for what in late] + codes + errors
    print("\n".join(wrong) or f"{arguments.manager}: all shown, all routes as expected")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("--manager", choices=MANAGERS, default="simple", help="Airflow's auth manager")
    parser.add_argument("--pictures", type=Path, default=Path("build/pages"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
