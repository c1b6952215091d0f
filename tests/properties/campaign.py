"""Solve random convex problems, and check every statement of every run.

    python -m tests.properties.campaign --cases 2000 --jobs 2
    python -m tests.properties.campaign --only 17

Each run is compared with the minimum over the rows of all nodes in extended precision
(`tests/support/pooled.py`). Exit code 0: all statements are true; 1: some are false.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import NamedTuple

import dadmm
from tests.properties import command
from tests.properties.cases import draw
from tests.properties.statements import (
    false_statements,
    is_right,
    of_result,
    of_version_0_1,
    repeat,
)
from tests.support.pooled import NotProved

COMMANDS = 10  # one case of so many is also run on the command line
WARM_STARTS = 7  # and one of so many is solved again from its result
SKIPPED, REFUSED = "no reference", "refused"


class Verdict(NamedTuple):
    """What came of a case."""

    seed: int
    case: str
    status: str  # of the run, or `SKIPPED`
    minimum: bool
    right: bool
    iterations: int
    seconds: float
    false: dict[str, str]  # false statements

    def __str__(self) -> str:
        return "\n    ".join(
            [self.case, *(f"FALSE ({k}): {text}" for k, text in self.false.items())]
        )


def judge(seed: int, max_iter: int = 1000, old: bool = False) -> Verdict:
    """Solve a case, and check what the run states."""
    start, case = time.monotonic(), draw(seed, max_iter)
    pooled = case.pooled()
    try:
        best = pooled.minimum()
    except NotProved:
        return Verdict(seed, str(case), SKIPPED, False, False, 0, 0.0, {})
    words = f"{case}\n    repeat: {repeat(case, old)}"
    try:
        result = case.solve(**({} if old else {"metric": case.metric}))
    except dadmm.DadmmError as error:  # a sentence instead of a result
        words += f"\n    {error}"
        return Verdict(seed, words, REFUSED, best.exists, False, 0, 0.0, {})
    said = of_version_0_1(result) if old else of_result(result)
    false = false_statements(said, pooled, best)
    right = is_right(said, pooled, best)
    if not old and seed % WARM_STARTS == 0:
        with suppress(dadmm.DadmmError):  # a sentence instead of a result
            again = of_result(case.solve(metric=case.metric, warm_start=result))
            found = false_statements(again, pooled, best)
            false |= {f"warm start: {name}": text for name, text in found.items()}
    if not old and seed % COMMANDS == 0:
        with tempfile.TemporaryDirectory() as folder:
            report = command.run(case, Path(folder))
            summary = command.of_run(Path(folder, "run"))
        found = false_statements(summary, pooled, best)
        false |= {f"summary: {name}": text for name, text in found.items()}
        false |= command.false_lines(report, summary, pooled, best)
    spent = time.monotonic() - start
    return Verdict(
        seed, words, said.status, best.exists, right, result.iterations, spent, false,
    )  # fmt: skip


def judge_one(arguments: tuple[int, int, bool]) -> Verdict:
    """Judge a case in a process of the pool; an error is a false statement, too."""
    try:
        return judge(*arguments)
    except Exception:
        seed, max_iter, old = arguments
        case = draw(seed, max_iter)
        words = f"{case}\n    repeat: {repeat(case, old)}"
        false = {"error": traceback.format_exc()}
        return Verdict(seed, words, "error", True, False, 0, 0.0, false)


def judge_all(seeds: Sequence[int], chosen: argparse.Namespace) -> Iterator[Verdict]:
    work = [(seed, chosen.max_iter, chosen.old) for seed in seeds]
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
    add("--old", action="store_true", help="check what version 0.1.0 states")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments_of(argv)
    seeds: Sequence[int] = range(chosen.first, chosen.first + chosen.cases)
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
        if verdict.status == "certified":
            iterations.append(verdict.iterations)
        if verdict.false or chosen.only or verdict.status == REFUSED:
            print(f"{verdict}\n    {verdict.status}, {verdict.iterations} iterations")
            sys.stdout.flush()
    print("\n| status | runs | fits within 1e-2 |\n|---|---:|---:|")
    for status, count in statuses.items():
        print(f"| {status} | {count} | {right[status]} |")
    if iterations:
        print(f"median iterations of certified runs: {median(iterations):g}")
    print("false statements:", dict(kinds) or "none")
    print(f"{len(seeds) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
