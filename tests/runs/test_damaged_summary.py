"""Every entry of a summary is checked when it is read: no reader meets another kind."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import numpy as np
import pytest

from dadmm import run
from dadmm.core.errors import ConfigError
from dadmm.runs.stored import StoredRun, read_summary
from dadmm.show import document, outcome, panels
from dadmm.show.page import Page

BAD = ["null", "-1.06", '"x"', "[null]", '{"a": []}', "1e400", "NaN", "1" * 400]
GONE = object()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs whose summaries have all entries among them."""
    home = tmp_path_factory.mktemp("summaries")
    rng = np.random.default_rng(0)
    X, kind = rng.normal(size=(90, 2)), rng.choice(list("abc"), 90)
    y = np.where(X @ [1, -1] + rng.normal(size=90) > 0, "yes", "no")
    rows = [f"{u:.4f},{v:.4f},{k},{t}" for (u, v), k, t in zip(X, kind, y, strict=True)]
    rows[0] = ",1.5,a,no"
    (home / "table.csv").write_text("\n".join(["u,v,kind,y", *rows]) + "\n")
    gaps = np.where(rng.random((60, 5)) < 0.1, np.nan, rng.normal(size=(60, 5)))
    np.save(home / "gaps.npy", gaps)
    table = ["--data", str(home / "table.csv"), "--problem", "logistic", "--alpha", "0"]
    table += ["--on-missing", "drop"]
    own = {
        "logistic": table,
        "merged": ["--data", str(home / "gaps.npy"), "--n-components", "2"],
        "merged-whole": ["--data", str(home / "whole.npy"), "--n-components", "2"],
    }
    np.save(home / "whole.npy", rng.normal(size=(60, 5)) * [9, 7, 1, 1, 1])
    for name, words in own.items():
        folder = home / name
        words = [*words, "--nodes", "3", "--quiet", "--out", str(folder)]
        assert run.main(words) in (0, 3)
    return [home / name for name in own]


def places(content: object, path: tuple = ()) -> Iterator[tuple]:
    """Yield the path to each entry of a JSON document, at all depths."""
    pairs: Iterator = iter(())
    if isinstance(content, dict):
        pairs = iter(content.items())
    elif isinstance(content, list):
        pairs = iter(enumerate(content[:2]))
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(summary: dict, path: tuple, value: object) -> dict:
    whole = copy.deepcopy(summary)
    *above, last = path
    place = whole
    for key in above:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return whole


def use(run: StoredRun) -> None:
    """Call all that reads a summary, except what draws."""
    page = Page([run])
    outcome.badge(run)
    outcome.top(page)
    outcome.results(page)
    document._facts(run)
    panels.endings(run)
    panels.title([run])


def test_no_mutation_of_an_entry_reaches_a_reader(folders, tmp_path):
    file, refused, cases = tmp_path / "summary.json", 0, 0
    for folder in folders:
        whole = StoredRun.read(folder)
        use(whole)
        for path in places(whole.summary):
            for value in [*map(json.loads, BAD), GONE]:
                cases += 1
                file.write_text(json.dumps(mutated(whole.summary, path, value)))
                try:
                    found = read_summary(file)
                    one = StoredRun(folder, found)
                    vars(one).update(vars(whole) | {"summary": found})  # read once
                    use(one)
                except ConfigError as error:
                    refused += path[0] in str(error)
    assert refused > 0.7 * cases > 700
