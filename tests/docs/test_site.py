"""The built site: its links, and that its pages load nothing from elsewhere.

``./launch/docs`` builds it before it runs these tests.
"""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.processes import ROOT

SITE = (ROOT / "docs" / "_build" / "html").resolve()
LOADS = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
LOADED = re.compile(r"(?:url\(|@import)\s*['\"]?(https?:|//)")  # by a style


class Page(HTMLParser):
    """The anchors and addresses of a page."""

    def __init__(self, file):
        super().__init__()
        self.file, self.anchors = file, {""}
        self.links, self.loads = set(), set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if tag == "a":
            self.links.add(given.get("href", ""))
        if given.get("rel") not in ("canonical", "author"):
            self.loads.add(given.get(LOADS.get(tag, ""), ""))

    def is_right(self, address, pages):
        """Return whether an address is there; what is loaded is in the site."""
        found = urlsplit(address)
        if found.scheme or found.netloc:
            return address not in self.loads or found.scheme == "data"
        target = (self.file.parent / unquote(found.path)).resolve()
        target = target if found.path else self.file
        if not target.is_file() or not target.is_relative_to(SITE):
            return False
        return target not in pages or unquote(found.fragment) in pages[target].anchors


def test_all_links_of_the_site_are_right():
    if not SITE.exists():
        pytest.skip("the site is not built; run ./launch/docs")
    files = [file for file in SITE.rglob("*.html") if "_static" not in file.parts]
    pages = {file: Page(file) for file in files}
    wrong = [
        (str(page.file), address)
        for page in pages.values()
        for address in (page.links | page.loads) - {""}
        if not page.is_right(address, pages)
    ]

    assert pages
    assert wrong == []
    styles = {file: file.read_text("utf-8") for file in SITE.rglob("*.css")}
    assert [file for file, text in styles.items() if LOADED.search(text)] == []
