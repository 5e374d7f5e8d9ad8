"""A rendered page as its elements and texts."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple
from xml.etree import ElementTree as ET

DOCTYPE = "<!DOCTYPE html>"


class Rendered(NamedTuple):
    """:param tags: in their order, each with the names of its attributes."""

    tags: list
    texts: list
    values: list

    @property
    def text(self):
        return " ".join(self.texts)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found = Rendered([], [], [])
        self.text = ""

    def _end_text(self):
        if text := self.text.strip(" \n"):
            self.found.texts.append(text)
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self._end_text()
        self.found.tags.append((tag, *(name for name, _ in attrs)))
        self.found.values.extend((name, value) for name, value in attrs)

    def handle_endtag(self, tag):
        self._end_text()

    def handle_data(self, data):
        self.text += data


def as_html(page):
    """Return what a parser of HTML finds."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found


def as_xml(page):
    """Return the root of the page, which is well-formed XML too."""
    head, _, rest = page.partition(DOCTYPE)
    assert head.strip() == ""
    return ET.fromstring(rest.strip())  # noqa: S314, our own page
