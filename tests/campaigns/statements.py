"""Solve random problems, and check every statement of every run.

    python -m tests.campaigns.faults --statements --cases 4000 --jobs 2
    python -m tests.campaigns.faults --statements --only convex:17

The problems are convex (``counted``: with classes or counts), PPCA, or ``hard``: convex
at the edge of double precision. Runs are compared with the solution over the rows of
all nodes in extended precision (`benchmarks/shared/pooled.py`, `subspaces.py`), those
of hard ones with exact minima.
"""

import traceback
import warnings
from contextlib import suppress
from typing import NamedTuple

import numpy as np

import dadmm
from benchmarks.shared.pooled import NotProved
from tests.campaigns.properties import cases, hard, ppca

WARM_STARTS = 7  # one case of so many is solved again from its result
KINDS = {"convex": cases, "counted": cases, "ppca": ppca, "hard": hard}
FAILURES = (FALSE, ERROR) = ("false statements", "errors")
OUTCOMES = ("converged", "others", *FAILURES)


class Verdict(NamedTuple):
    """What came of a case."""

    case: str
    status: str  # of the run, or why there is none
    converged: bool = False
    false: dict[str, str] = {}  # noqa: RUF012 (false statements; never changed)
    iterations: int = 0

    def __str__(self) -> str:
        said = [f"FALSE ({name}): {text}" for name, text in self.false.items()]
        return "\n    ".join([self.case, *said, f"{self.iterations} iterations"])


def judge(kind: str, seed: int, **limits: int) -> Verdict:
    """Solve a case, and check what the run states."""
    case = KINDS[kind].draw(seed + cases.COUNTED * (kind == "counted"), **limits)
    shown = {k: v for k, v in vars(case).items() if not isinstance(v, np.ndarray)}
    words = f"{kind} case, rows {case.X.shape}, {shown}"
    try:
        with warnings.catch_warnings():
            if kind == "hard":
                warnings.simplefilter("ignore")  # of overflow
            result = case.solve()
            status, false = check(kind, case, result)
    except NotProved:
        return Verdict(words, "no reference")
    except dadmm.DadmmError as error:  # a sentence instead of a result
        return Verdict(f"{words}\n    {error}", "refused")
    return Verdict(words, status, result.converged, false, result.iterations)


def check(kind, case, result) -> tuple[str, dict[str, str]]:
    """Return the status of a result, and what is false of it."""
    if kind == "ppca":
        found = ppca.compare(case, result)
        false = ppca.false_statements(case, result, found)
        return f"{result.status}, {result.ending.init}", false
    if kind == "hard":
        return result.status, hard.false_statements(case, result)
    pooled = case.pooled()
    best = pooled.minimum()
    false = cases.false_statements(result, pooled, best)
    if case.seed % WARM_STARTS == 0:
        with suppress(dadmm.DadmmError):  # a sentence instead of a result
            again = case.solve(warm_start=result)
            found = cases.false_statements(again, pooled, best)
            false |= {f"warm start: {name}": text for name, text in found.items()}
    return result.status, false


def play(kind: str, seed: int) -> dict[str, str]:
    """Judge a case, and return its row."""
    try:
        found = judge(kind, seed)
    except Exception:
        return {"outcome": ERROR, "mpi": "", "run": "", "story": traceback.format_exc()}
    outcome = "converged" if found.converged else "others"
    if found.status in ("no reference", "refused"):
        outcome = found.status
    outcome = FALSE if found.false else outcome
    return {"outcome": outcome, "mpi": found.status, "run": "", "story": str(found)}
