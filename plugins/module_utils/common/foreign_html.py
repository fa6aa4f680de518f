# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the links of a page that others write."""

from __future__ import annotations

from html.parser import HTMLParser


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Skip ``<![...>``, as browsers do; Python's parser raises AssertionError at one that it does not know."""
        return self.parse_bogus_comment(i, report)


def read_links(page: str) -> list[str]:
    """Return the addresses that a page links to, as they are written there."""
    links = _Links()
    links.feed(page)
    return links.found
