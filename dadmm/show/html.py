"""HTML text: escaped words, tables, and arrays and figures as JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from dadmm.core.errors import printable

NONE = "\N{EN DASH}"  # in a table
TYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u1": "|u1"}


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(words: object) -> str:
    """Return words as HTML text, with control characters made visible."""
    return words if isinstance(words, Markup) else escape(printable(str(words)))


def prose(words: str) -> str:
    """Return several lines as HTML text, which keeps its lines."""
    return "\n".join(map(text, words.split("\n")))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number in few digits; a dash if it is unknown."""
    if value is None or np.isnan(value):
        return NONE
    return f"{value:.{digits}g}"


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    kind: str = "",
) -> str:
    """Return a table; the first cell of a row is its header, the others numbers.

    The columns of a table of the ``kind`` "sortable" can be sorted in the browser.
    """
    top = "".join(f'<th scope="col">{text(word)}</th>' for word in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{text(word)}</td>" for word in others)
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    name = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{name}><caption>{text(caption)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def details(summary: str, inner: str) -> str:
    """Return HTML that is folded until the reader opens it; nothing for nothing."""
    if not inner:
        return ""
    return f"<details><summary>{text(summary)}</summary>{inner}</details>"


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of plain words; nothing for none."""
    if not words:
        return ""
    name = f' class="{kind}"' if kind else ""
    return f"<p{name}>{text(words)}</p>"


def facts(lines: Iterable[str]) -> str:
    """Return a list of sentences; nothing for none."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="facts">{items}</ul>' if items else ""


def packed(values: Any, kind: str = "f8") -> dict[str, Any]:
    """Return an array as plotly and the scripts read it: base64 of its bytes."""
    array = np.ascontiguousarray(values, dtype=TYPES[kind])
    found: dict[str, Any] = {
        "dtype": kind,
        "bdata": b64encode(array.tobytes()).decode(),
    }
    if array.ndim > 1:
        found["shape"] = ",".join(map(str, array.shape))
    return found


def embedded(content: Mapping[str, Any]) -> str:
    """Return JSON that may stand in a script element, whatever its strings are."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
