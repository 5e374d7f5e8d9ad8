"""The pictures of the documentation are small, used, and made by the scripts beside them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES = sorted(path for path in IMAGES.iterdir() if path.suffix in (".svg", ".png"))
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def test_the_demos_drawing_is_that_of_its_recording():
    draw = runpy.run_path(str(IMAGES / "draw.py"))["draw"]
    assert draw((IMAGES / "demo.cast").read_text()) == (IMAGES / "demo.svg").read_text()


def test_the_recorded_demo_proved_it():
    assert "Proven: one conflict, one retry" in (IMAGES / "demo.cast").read_text()


def test_the_recorded_demo_runs_what_make_demo_runs():
    recipe = re.search(r"^demo:.*\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    command = recipe[1].replace("$(BIN)", ".venv/bin").partition("$(LOCK)")[0]
    assert command in (IMAGES / "demo.cast").read_text()


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_each_picture_is_small_and_shown(path):
    assert path.stat().st_size < 200_000
    assert any(f"images/{path.name}" in page.read_text() for page in PAGES)
