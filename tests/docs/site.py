"""Check the pages of a built site: their links, and that they load nothing else."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
LOADED = re.compile(r"(?:url\(|@import)\s*['\"]?(https?:|//)")  # by a style


class Page(HTMLParser):
    """The anchors and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        if given.get("rel") not in ("canonical", "author"):
            self.loads |= {given.get(LOADS.get(tag, ""), "")} - {""}


def faults_of(site: Path) -> list[str]:
    """Return a sentence for each address of a site that is wrong."""
    files = [f for f in site.rglob("*.html") if "_static" not in f.parts]
    pages = {file: Page(file.read_text("utf-8")) for file in files}
    faults = [fault for file in pages for fault in _of_page(site, file, pages)]
    for file in site.rglob("*.css"):
        found = LOADED.findall(file.read_text("utf-8"))
        faults += [f"{file.relative_to(site)} loads from elsewhere: {x}" for x in found]
    return sorted(faults) if pages else [f"there is no page in {site}"]


def _of_page(site: Path, file: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page, name = pages[file], file.relative_to(site)
    for address in sorted(page.links | page.loads):
        found = urlsplit(address)
        target = (file.parent / unquote(found.path)).resolve() if found.path else file
        if found.scheme or found.netloc:
            if address in page.loads and found.scheme != "data":
                yield f"{name} loads {address}, which is not in the site"
        elif not target.is_file() or not target.is_relative_to(site.resolve()):
            yield f"{name}: {address} does not exist"
        elif found.fragment and target in pages:
            anchors = pages[target].anchors
            if unquote(found.fragment) not in anchors:
                yield f"{name}: {address} has no such anchor"
