"""Report pages for tests: runs to report on, and what is in a page."""

import json
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from dadmm import run
from dadmm.runs.folder import RunFolder
from dadmm.runs.row_files import iteration, sealed

SMALL = ("--quiet", "--n-samples", "60", "--dimension", "6", "--n-components", "2")


def make_run(folder: Path, *flags: str) -> Path:
    """Make a small run, by nap on six nodes unless said, and return its folder."""
    usual = ("--nodes", "6", "--topology", "cluster", "--scheme", "nap")
    words = [*SMALL, *usual, "--max-iter", "12", *flags, "--out", str(folder)]
    assert run.main(words) == 0
    return folder


def unfinish(folder: Path, n_nodes: int, last: int, edges: bool) -> None:
    """Make a run look as when it wrote the next line after iteration ``last``."""
    RunFolder(folder, n_nodes).save()
    (folder / "parts").mkdir()
    for kind in ("history", "edges") if edges else ("history",):
        rows = (folder / f"{kind}.csv").read_bytes().splitlines()[1:]
        kept = [sealed(row) for row in rows if iteration(row) <= last]
        after = rows[len(kept)] if len(kept) < len(rows) else b""
        text = b"".join(kept) + after[: len(after) // 2]
        (folder / "parts" / f"{kind}-00000.csv").write_bytes(text)
        (folder / f"{kind}.csv").unlink()
    for name in ("summary.json", "result.npz", "model.json"):
        (folder / name).unlink()


class Parsed(HTMLParser):
    """The elements of a page: tags with their attributes, and the text of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = [""]
        self.feed(page)
        found = [text for tag, text in self.texts if tag == "script"]
        (content,) = [text for text in found if text.startswith('{"figures"')]
        self.data = json.loads(content)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data) -> None:
        self.texts.append((self._open[-1], data))

    @property
    def words(self) -> str:
        hidden = ("script", "style", "title", "noscript")
        return "\n".join(text for tag, text in self.texts if tag not in hidden)


def unpacked(packed: dict) -> np.ndarray:
    array = np.frombuffer(b64decode(packed["bdata"]), "<" + packed["dtype"])
    shape = packed.get("shape")
    return array if shape is None else array.reshape([*map(int, shape.split(","))])
