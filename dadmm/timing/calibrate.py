"""Fit a network to measurements: ``dadmm calibrate ROWS.csv --out my.toml``.

The rows are ping-pong messages on an idle network. The network is for ``dadmm replay``;
it has no headers: the bandwidth is for the payload. Exit code 2: invalid input.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from dadmm.core.arguments import Parser
from dadmm.core.documents import reading, write_text
from dadmm.core.errors import ConfigError
from dadmm.core.schema import from_text, number
from dadmm.timing.network import AMOUNT, CLASSES, Link, Network

DURATION = number("from 1e-12 to 1e18", lambda x: 1e-12 <= x <= 1e18)  # seconds


def fit(sizes: ArrayLike, seconds: ArrayLike) -> tuple[float, float]:
    """Return latency and bandwidth of ``seconds = latency + size / bandwidth``.

    The line is fitted to the median of each size, which a few slow messages do not
    change, by relative errors, because sizes span decades. Neither number is negative;
    the bandwidth may be infinite.
    """
    sizes, seconds = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    points = np.unique(sizes)
    if len(points) < 2 or not (seconds > 0).all():
        raise ConfigError(
            "latency and bandwidth need messages of at least two sizes, and positive "
            f"times; got {len(points)} sizes"
        )
    times = np.array([np.median(seconds[sizes == size]) for size in points])
    design = np.stack([1 / times, points / times], axis=1)
    scale = design.max(axis=0)
    latency, pace = (nnls(design / scale, np.ones(len(times)))[0] / scale).tolist()
    return latency, 1 / pace if pace > 0 else math.inf


def calibrated(rows: Sequence[Mapping[str, str]], name: str = "network") -> Network:
    """Return the network of rows with class, bytes, seconds."""
    links = {}
    for kind in CLASSES:
        if own := [row for row in rows if row["class"] == kind]:
            numbers = ([float(row[k]) for row in own] for k in ("bytes", "seconds"))
            links[kind] = Link(*fit(*numbers))
    if not links:
        raise ConfigError(f"no row has a class of {', '.join(CLASSES)}")
    return Network(links, name=name)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with reading(path), open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for column in ("class", "bytes", "seconds"):
        if not rows or column not in rows[0]:
            raise ConfigError(
                f"{path} has no column {column!r}, or no rows; give a table with the "
                "columns class, bytes and seconds"
            )
    for k, row in enumerate(rows, 1):
        for column, kind in (("bytes", AMOUNT), ("seconds", DURATION)):
            name = f"{path}, row {k}: {column}"
            kind.check(name, from_text(name, str(row[column]), "float"))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the network of a CSV file; return the exit code."""
    parser = Parser("calibrate", "Fit latency and bandwidth to measured messages.")
    add = parser.add_argument
    columns = "class (socket, host, lan, wan), bytes, seconds of half a round trip"
    add("rows", metavar="ROWS.csv", help=f"columns: {columns}")
    add("--out", metavar="FILE", help="file for the network (default: print)")
    given = parser.parse_args(argv)
    path = Path(given.out or given.rows)
    text = calibrated(read(Path(given.rows)), name=path.stem).to_toml()
    if given.out:
        write_text(path, text)
    else:
        print(text, end="")
    return 0
