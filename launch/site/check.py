"""Check the pages of a built site: their links, and that they load nothing else.

An address outside of the site is checked for its form only: a build needs no network.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
OUTSIDE = ("http", "https")
LOADED = re.compile(r"(?:url\(|@import)\s*['\"]?(https?:|//)")  # by a style


class Page(HTMLParser):
    """The anchors and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("rel") in ("canonical", "author"):
            return
        if address := given.get(LOADS.get(tag, "")):
            self.loads.append(address)


def faults_of(site: Path) -> list[str]:
    """Return a sentence for each address of a site that is wrong."""
    files = [f for f in site.rglob("*.html") if "_static" not in f.parts]
    pages = {file: Page(file.read_text("utf-8")) for file in files}
    faults = [fault for file in pages for fault in _of_page(site, file, pages)]
    if not pages:
        faults.append(f"there is no page in {site}")
    for file in site.rglob("*.css"):
        for address in LOADED.findall(file.read_text("utf-8")):
            faults.append(f"{file.relative_to(site)} loads from elsewhere: {address}")
    return sorted(faults)


def _of_page(site: Path, file: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page, name = pages[file], file.relative_to(site)
    for address in sorted({*page.links, *page.loads}):
        found = urlsplit(address)
        if found.scheme or found.netloc:
            if address in page.loads and found.scheme != "data":
                yield f"{name} loads {address}, which is not in the site"
            elif found.scheme in OUTSIDE and not re.fullmatch(
                r"([\w-]+\.)+[a-z]{2,}|localhost(:\d+)?", found.netloc
            ):
                yield f"{name}: {address} is not an address"
            continue
        target = (file.parent / unquote(found.path)).resolve() if found.path else file
        if not target.is_file() or not target.is_relative_to(site.resolve()):
            yield f"{name}: {address} does not exist"
        elif found.fragment and target in pages:
            anchor = unquote(found.fragment)
            if anchor not in pages[target].anchors:
                yield f"{name}: {address} has no such anchor"
