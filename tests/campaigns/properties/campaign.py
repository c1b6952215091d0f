"""Solve random problems, and check every statement of every run.

    python -m tests.campaigns.properties.campaign --cases 2000 --jobs 2
    python -m tests.campaigns.properties.campaign --ppca --cases 500 --jobs 2
    python -m tests.campaigns.properties.campaign --hard --cases 500 --jobs 2
    python -m tests.campaigns.properties.campaign --only 17

The problems are convex, or with --ppca PPCA. With --hard they are convex and at the
edge of double precision, and compared with exact minima (`hard.py`). Each other
run is compared with the solution over the rows of all nodes in extended precision
(`tests/support/pooled.py` and `subspaces.py`). Exit code 0: all statements are true; 1:
some are false.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import dadmm
from tests.campaigns.properties import hard, ppca, statements
from tests.campaigns.properties.cases import COUNTED, draw
from tests.campaigns.properties.statements import false_statements, is_right, of_result
from tests.support.pooled import NotProved

COMMANDS = 10  # one case of so many is also run on the command line
WARM_STARTS = 7  # and one of so many is solved again from its result
GOOD = ("certified", "stationary, merged")
SKIPPED, REFUSED = "no reference", "refused"


class Verdict(NamedTuple):
    """What came of a case."""

    seed: int
    case: str
    status: str  # of the run, or `SKIPPED`
    right: bool
    iterations: int
    false: dict[str, str]  # false statements

    def __str__(self) -> str:
        return "\n    ".join(
            [self.case, *(f"FALSE ({k}): {text}" for k, text in self.false.items())]
        )


def described(case: Any, flag: str = "") -> str:
    """Return a case in words, with the command that repeats it."""
    again = f"python -m tests.campaigns.properties.campaign --only {case.seed}{flag}"
    return f"{case}\n    repeat: {again}"


def judge(seed: int, max_iter: int = 1000) -> Verdict:
    """Solve a case, and check what the run states."""
    case = draw(seed, max_iter)
    pooled, words = case.pooled(), described(case)
    try:
        best = pooled.minimum()
    except NotProved:
        return Verdict(seed, words, SKIPPED, False, 0, {})
    try:
        result = case.solve(coordinates=case.coordinates)
    except dadmm.DadmmError as error:  # a sentence instead of a result
        words += f"\n    {error}"
        return Verdict(seed, words, REFUSED, False, 0, {})
    said = of_result(result)
    false = false_statements(said, pooled, best)
    right = is_right(said, pooled, best)
    if seed % WARM_STARTS == 0:
        with suppress(dadmm.DadmmError):  # a sentence instead of a result
            again = case.solve(coordinates=case.coordinates, warm_start=result)
            found = false_statements(of_result(again), pooled, best)
            false |= {f"warm start: {name}": text for name, text in found.items()}
    if seed % COMMANDS == 0 and statements.accepts(case):
        with tempfile.TemporaryDirectory() as folder:
            report = statements.run(statements.arguments(case, Path(folder)))
            summary = statements.of_run(Path(folder, "run"))
        found = false_statements(summary, pooled, best)
        false |= {f"summary: {name}": text for name, text in found.items()}
        false |= statements.false_lines(report, summary, pooled, best)
    return Verdict(seed, words, said.status, right, result.iterations, false)


def judge_ppca(seed: int, max_iter: int = 1000) -> Verdict:
    """Solve a case of PPCA, and check what the run states."""
    case = ppca.draw(seed, max_iter)
    words = described(case, " --ppca")
    try:
        result = case.solve()
    except dadmm.DadmmError as error:  # a sentence instead of a result
        words += f"\n    {error}"
        return Verdict(seed, words, REFUSED, False, 0, {})
    found = ppca.compare(case, result)
    false = ppca.false_statements(case, result, found)
    if seed % COMMANDS == 0 and case.coordinates == "auto":
        with tempfile.TemporaryDirectory() as folder:
            report = statements.run(ppca.arguments(case, Path(folder)))
            false |= ppca.false_lines(case, report, Path(folder, "run"), found)
    status, right = f"{result.status}, {result.ending.init}", ppca.is_right(case, found)
    return Verdict(seed, words, status, right, result.iterations, false)


def judge_hard(seed: int, max_iter: int = 1000) -> Verdict:
    """Solve a case at the edge of double precision, and check what the run states."""
    case = hard.draw(seed)
    status, iterations, false = REFUSED, 0, {}
    with warnings.catch_warnings(), suppress(dadmm.DadmmError):
        warnings.simplefilter("ignore")  # of overflow
        result = case.solve()
        status, iterations = result.status, result.iterations
        try:
            false = hard.false_statements(case, result)
        except NotProved:
            status = SKIPPED
    right = status == "certified" and not false
    return Verdict(seed, described(case, " --hard"), status, right, iterations, false)


JUDGES = {"convex": judge, "ppca": judge_ppca, "hard": judge_hard}


def judge_one(arguments: tuple[str, int, int]) -> Verdict:
    """Judge a case in a process of the pool; an error is a false statement, too."""
    kind, seed, max_iter = arguments
    try:
        return JUDGES[kind](seed, max_iter)
    except Exception:
        false = {"error": traceback.format_exc()}
        return Verdict(seed, f"{kind} {seed}", "error", False, 0, false)


def judge_all(seeds: Sequence[int], chosen: argparse.Namespace) -> Iterator[Verdict]:
    work = [(chosen.kind, seed, chosen.max_iter) for seed in seeds]
    if chosen.jobs == 1:
        yield from map(judge_one, work)
        return
    with Pool(chosen.jobs) as pool:
        yield from pool.imap_unordered(judge_one, work)


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cases", type=int, default=2000, help="how many")
    add("--first", type=int, default=0, help="first seed")
    add("--only", help="these seeds, with commas")
    add("--max-iter", type=int, default=1000, help="of runs that are not cut short")
    add("--jobs", type=int, default=1, help="cases at a time")
    kinds = {"ppca": "PPCA", "hard": "convex problems at the edge of double precision"}
    for name, what in kinds.items():
        add(f"--{name}", dest="kind", action="store_const", const=name, help=what)
    parser.set_defaults(kind="convex")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments_of(argv)
    last = chosen.first + chosen.cases
    seeds: Sequence[int] = range(chosen.first, last)
    if chosen.first < COUNTED and chosen.kind == "convex":
        # a fifth are the last two problems
        more = chosen.cases // 5
        counted = range(COUNTED + chosen.first, COUNTED + chosen.first + more)
        seeds = [*range(chosen.first, last - more), *counted]
    if chosen.only:
        seeds = [int(seed) for seed in chosen.only.split(",")]
    statuses: Counter[str] = Counter()
    right: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    failed, iterations = 0, []
    for verdict in judge_all(seeds, chosen):
        statuses[verdict.status] += 1
        right[verdict.status] += verdict.right
        kinds.update(verdict.false.keys())
        failed += bool(verdict.false)
        if verdict.status in GOOD:
            iterations.append(verdict.iterations)
        refused = verdict.status == REFUSED and chosen.kind != "hard"
        if verdict.false or chosen.only or refused:
            print(f"{verdict}\n    {verdict.status}, {verdict.iterations} iterations")
            sys.stdout.flush()
    print("\n| status | runs | right |\n|---|---:|---:|")
    for status, count in statuses.items():
        print(f"| {status} | {count} | {right[status]} |")
    if iterations:
        print(f"median iterations of {' or '.join(GOOD)}: {median(iterations):g}")
    print("false statements:", dict(kinds) or "none")
    print(f"{len(seeds) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
