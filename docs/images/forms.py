"""Photograph the connection forms in Airflow's UI: ``python docs/images/forms.py URL``.

URL is the UI of a running Airflow with this provider, such as that of ``make demo KEEP=1``. Needs
Playwright (``pip install playwright``) and a Chromium on the PATH; neither is a dependency.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from airflow_occ_provider.provider_info import get_provider_info

FOLDER = Path(__file__).parent
HOSTS = {
    "hudi_zookeeper_lock": "zk1:2181,zk2:2181",
    "hudi_metastore_lock": "thrift://hms1:9083",
    "hudi_storage_lock": "s3://lake/airflow_occ",
    "hudi_dynamodb_lock": "airflow_occ",
    "hudi_table": "s3://lake/trips",
}


def main(url: str) -> None:
    """Write two pictures per connection type."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1000, "height": 2600})
        page.set_default_timeout(60_000)
        page.goto(f"{url}/auth/token/login")
        for form in get_provider_info()["connection-types"]:
            photograph(page, url, form)
        browser.close()


def photograph(page: Page, url: str, form: dict[str, str]) -> None:
    """Open the form of a new connection, fill in an example, and write pictures of its two parts."""
    page.goto(f"{url}/connections")
    page.get_by_role("button", name="Add Connection").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[name=connection_id]").fill("hudi_lock")
    kind = dialog.get_by_role("combobox").first
    kind.click()
    kind.fill(form["hook-name"])
    page.get_by_role("option", name=form["hook-name"]).first.click()
    dialog.locator("input[name=host]").fill(HOSTS[form["connection-type"]])
    for part, name in (("Standard Fields", "hosts"), ("Extra Fields", "fields")):
        if name == "fields":
            dialog.get_by_text(part, exact=True).first.click()
        page.wait_for_timeout(1000)  # the part unfolds
        dialog.screenshot(path=FOLDER / f"{form['connection-type']}_{name}.png")


if __name__ == "__main__":
    main(sys.argv[1])
