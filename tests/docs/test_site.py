"""The built site: its links, and that its pages load nothing from elsewhere.

``./launch/docs`` builds it before it runs these tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.processes import ROOT

SITE = ROOT / "docs" / "_build" / "html"
LOADS = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
LOADED = re.compile(r"(?:url\(|@import)\s*['\"]?(https?:|//)")  # by a style


class Page(HTMLParser):
    """The anchors and addresses of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.anchors = file, {""}
        self.links, self.loads = set[str](), set[str]()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if tag == "a":
            self.links.add(given.get("href", ""))
        if given.get("rel") not in ("canonical", "author"):
            self.loads.add(given.get(LOADS.get(tag, ""), ""))


def faults_of(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield each address of a page that is wrong."""
    for address in (page.links | page.loads) - {""}:
        found = urlsplit(address)
        target = (page.file.parent / unquote(found.path)).resolve()
        target = target if found.path else page.file
        if found.scheme or found.netloc:
            if address in page.loads and found.scheme != "data":
                yield f"{page.file} loads {address}, which is not in the site"
        elif not target.is_file() or not target.is_relative_to(SITE.resolve()):
            yield f"{page.file}: {address} does not exist"
        elif target in pages and unquote(found.fragment) not in pages[target].anchors:
            yield f"{page.file}: {address} has no such anchor"


def test_all_links_of_the_site_are_right():
    if not SITE.exists():
        pytest.skip("the site is not built; run ./launch/docs")
    files = [f.resolve() for f in SITE.rglob("*.html") if "_static" not in f.parts]
    pages = {file: Page(file) for file in files}

    assert pages
    assert [x for page in pages.values() for x in faults_of(page, pages)] == []
    styles = {file: file.read_text("utf-8") for file in SITE.rglob("*.css")}
    assert [file for file, text in styles.items() if LOADED.search(text)] == []


def test_no_bar_stretches_and_every_index_is_beside_its_letter(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    import mathml

    monkeypatch.delitem(sys.modules, "mathml")
    norm = mathml.drawn(r"\| \bar\theta_i^t \| < |x|", block=True)
    cases = mathml.drawn(r"\begin{cases} a & b \\ c & d \end{cases}", block=True)

    assert norm.count('stretchy="false"') == 4
    assert "<msubsup>" in norm
    assert "munder" not in norm
    assert "{" not in cases
    assert 'class="cases"' in cases
