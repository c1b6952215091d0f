"""Solve random problems, and check every statement of every run.

    python -m tests.campaigns.properties.campaign --cases 2000 --jobs 2
    python -m tests.campaigns.properties.campaign --ppca --cases 500 --jobs 2
    python -m tests.campaigns.properties.campaign --hard --cases 500 --jobs 2
    python -m tests.campaigns.properties.campaign --only 17

The problems are convex, or with --ppca PPCA. With --hard they are convex and at the
edge of double precision, and compared with exact minima (`hard.py`). Each other
run is compared with the solution over the rows of all nodes in extended precision
(`benchmarks/shared/pooled.py`, `tests/support/subspaces.py`). Exit code 0: all
statements are true; 1: some are false.
"""

import argparse
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.shared.pooled import NotProved
from tests.campaigns.properties import cases, hard, ppca, statements
from tests.campaigns.properties.cases import COUNTED

COMMANDS = 10  # one case of so many is also run on the command line
WARM_STARTS = 7  # and one of so many is solved again from its result
GOOD = ("certified", "stationary, merged")
Found = tuple[str, bool, dict[str, str]]  # status, if it is right, what is false


class Verdict(NamedTuple):
    """What came of a case."""

    case: str
    status: str  # of the run, or why there is none
    right: bool = False
    false: dict[str, str] = {}  # noqa: RUF012 (false statements; never changed)
    iterations: int = 0

    def __str__(self) -> str:
        said = [f"FALSE ({name}): {text}" for name, text in self.false.items()]
        end = f"{self.status}, {self.iterations} iterations"
        return "\n    ".join([self.case, *said, end])


def check_convex(case: cases.Case, result: dadmm.Result) -> Found:
    pooled = case.pooled()
    best = pooled.minimum()
    false = statements.false_statements(result, pooled, best)
    if case.seed % WARM_STARTS == 0:
        with suppress(dadmm.DadmmError):  # a sentence instead of a result
            again = case.solve(warm_start=result)
            found = statements.false_statements(again, pooled, best)
            false |= {f"warm start: {name}": text for name, text in found.items()}
    if case.seed % COMMANDS == 0 and statements.accepts(case):
        with tempfile.TemporaryDirectory() as folder:
            false |= statements.false_summary(case, Path(folder), pooled, best)
    return result.status, statements.is_right(result, pooled, best), false


def check_ppca(case: ppca.PPCACase, result: dadmm.Result) -> Found:
    found = ppca.compare(case, result)
    status, false = result.status, ppca.false_statements(case, result, found)
    return f"{status}, {result.ending.init}", ppca.is_right(case, found), false


def check_hard(case: hard.Hard, result: dadmm.Result) -> Found:
    false = hard.false_statements(case, result)
    return result.status, result.status == "certified" and not false, false


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Found]]] = {
    "convex": (cases.draw, check_convex),
    "ppca": (ppca.draw, check_ppca),
    "hard": (hard.draw, check_hard),
}


def judge_kind(kind: str, seed: int, **limits: int) -> Verdict:
    """Solve a case, and check what the run states."""
    draw, check = KINDS[kind]
    case = draw(seed, **limits)
    shown = {k: v for k, v in vars(case).items() if not isinstance(v, np.ndarray)}
    words = f"{kind} case, rows {case.X.shape}, {shown}"
    try:
        with warnings.catch_warnings():
            if kind == "hard":
                warnings.simplefilter("ignore")  # of overflow
            result = case.solve()
            return Verdict(words, *check(case, result), result.iterations)
    except NotProved:
        return Verdict(words, "no reference")
    except dadmm.DadmmError as error:  # a sentence instead of a result
        return Verdict(f"{words}\n    {error}", "refused")


judge, judge_ppca, judge_hard = (partial(judge_kind, kind) for kind in KINDS)


def judge_one(work: tuple[str, int, int]) -> Verdict:
    """Judge a case in a process of the pool; an error is a false statement, too."""
    kind, seed, max_iter = work
    try:
        return judge_kind(kind, seed, max_iter=max_iter)
    except Exception:
        error = {"error": traceback.format_exc()}
        return Verdict(f"{kind} {seed}", "error", false=error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cases", type=int, default=2000, help="how many")
    add("--first", type=int, default=0, help="first seed")
    add("--only", help="these seeds, with commas")
    add("--max-iter", type=int, default=1000, help="of runs that are not cut short")
    add("--jobs", type=int, default=1, help="cases at a time")
    for name in ("ppca", "hard"):
        add(f"--{name}", dest="kind", action="store_const", const=name)
    parser.set_defaults(kind="convex")
    chosen = parser.parse_args()
    seeds = [*range(chosen.first, chosen.first + chosen.cases)]
    if chosen.first < COUNTED and chosen.kind == "convex":
        more = chosen.cases // 5  # a fifth are the last two problems
        seeds = [*seeds[: len(seeds) - more], *(COUNTED + k for k in seeds[:more])]
    if chosen.only:
        seeds = [int(seed) for seed in chosen.only.split(",")]
    verdicts = []
    with Pool(chosen.jobs) as pool:
        work = [(chosen.kind, seed, chosen.max_iter) for seed in seeds]
        for verdict in pool.imap_unordered(judge_one, work):
            verdicts.append(verdict)
            refused = verdict.status == "refused" and chosen.kind != "hard"
            if verdict.false or chosen.only or refused:
                print(verdict, flush=True)
    print("\n| status | runs | right |\n|---|---:|---:|")
    for status, count in Counter(verdict.status for verdict in verdicts).items():
        right = sum(verdict.right for verdict in verdicts if verdict.status == status)
        print(f"| {status} | {count} | {right} |")
    if taken := [verdict.iterations for verdict in verdicts if verdict.status in GOOD]:
        print(f"median iterations of {' or '.join(GOOD)}: {median(taken):g}")
    false = Counter(name for verdict in verdicts for name in verdict.false)
    failed = sum(bool(verdict.false) for verdict in verdicts)
    print("false statements:", dict(false) or "none")
    print(f"{len(verdicts) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
