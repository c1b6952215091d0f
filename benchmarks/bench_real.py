"""Does a default run on anybody's table give the pooled solution, and is it truthful?

    python -m benchmarks.bench_real [--ppca] [--quick | --fresh] [--csv FILE [--report]]
        [--only table=iris,units=far]

A seeded sample of public tables x problems x graphs x units x orders of the rows; one
`dadmm.solve` each, in one process, with all defaults. The tables and their units are
in `shared/tables.py`, the pooled solution in `shared/pooled.py`; both need
`pip install 'dadmm[bench]'`. Tables that were used to choose anything are "seen". The
"fresh" ones, a third of all, run with --fresh only: once, at the end, when nothing is
going to be chosen any more. Look at them before, and they are no longer fresh.

A case counts as *near* if, at the worst node,
- the predictions for all rows (log-odds for logistic) are within 1e-2 of those of the
  pooled solution: |X theta_i - X theta*| <= 1e-2 |X theta*|; and
- each entry of theta that the data determine is within 1e-2 of its scale (`Solution`).
It is *right* if the run also says that it converged. It is *false* if one of these
holds:
- answer: the run says "certified" and is not near; entries that differ by no more than
  the stated bound do not count here;
- gap, coefficient: the truth exceeds the stated bound on the objective or on an entry;
- objective: the stated objective is not that of the stated solution, by more than 1 %
  of the stated gap.
Errors below 1e-8 of the optimum plus 1e-16 of the objective at zero, and below 1e-10 of
an entry's scale, are rounding and do not count for these.

The settings follow from all rows, x_k and y with mean 0:
- l2 of ridge and elastic net: 0.01 of the median over columns of |x_k|^2; a quarter of
  that for logistic, and ten times more until no log-odds exceeds 20;
- l1 of lasso and elastic net: 0.1 of the median over columns of |x_k' y|;
- delta of Huber: 1.345 times the residuals' scale (median over 0.6745) after least
  squares, at least 1e-3 of the spread of y, and twice as much until the rows within
  delta determine all predictions.
Each node has its share of the rows, as they are shuffled or sorted by y, and an n-th of
the penalty. Classes are the values of y if there are two, else y above its median.

With --ppca, the problems are PPCA of X with 1 to 5 components (ppca-1 to ppca-5). Then
a case is near if, at every node, the largest angle between its subspace and that of the
pooled solution is at most 1 degree, and W W' is within 1e-2 of the pooled one, relative
to its Frobenius norm. It is false if the run says that it converged and is not near.
The columns fit_error and entry_error have the angle in degrees and the error of W W'.
Cases in which rounding decides the pooled subspace are left out.

With --csv, rows are added one by one, and cases in the file are not run again;
--report runs none. The five words of a case are also its seed, so --only runs it again
as it was.
"""

import subprocess
from argparse import ArgumentTypeError
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

import dadmm
from benchmarks.shared import pooled, tables
from benchmarks.shared.commands import ROOT, parser_of, print_markdown, say
from benchmarks.shared.experiment import read_rows, write_rows, written
from dadmm.data.shard import bounds

PPCA = tuple(f"ppca-{m}" for m in range(1, 6))
PROBLEMS = ("least_squares", "ridge", "lasso", "elastic_net", "logistic", "huber")
GRAPHS = {
    "ring-6": dadmm.Topology.ring(6), "ring-20": dadmm.Topology.ring(20),
    "grid-12": dadmm.Topology.grid(12), "star-10": dadmm.Topology.star(10),
    "path-10": dadmm.Topology.chain(10),
}  # fmt: skip
ORDERS = ("shuffled", "sorted")
CASES, FRESH_CASES, QUICK_CASES = 600, 300, 30
CLOSE, MOST_LOG_ODDS = 1e-2, 20.0
GAP_FLOOR, ROUNDING, ENTRY_FLOOR = 1e-8, 1e-16, 1e-10
HEAD = (
    "cases", "right", "false", "not converged", "iterations, median", "90 %",
    "loop, kB", "set-up and end, kB", "one sum, kB",
)  # fmt: skip
Row = dict[str, Any]


class Case(NamedTuple):
    table: str
    problem: str
    graph: str
    units: str
    order: str


def sample(
    names: Sequence[str], count: int, problems: Sequence[str] = PROBLEMS
) -> list[Case]:
    """Return a seeded sample of the cases of some tables; every node has a row."""
    rng, found = np.random.default_rng(16), []
    rest = (problems, GRAPHS, tables.UNITS, ORDERS)
    left = {name: list(product([name], *rest)) for name in sorted(names)}
    while len(found) < count:  # one case of each table in turn
        for name in left:
            case = Case(*left[name].pop(rng.integers(len(left[name]))))
            n, d = tables.load(name)[0].shape
            fits = case.problem not in PPCA or components(case) < min(n, d)
            if fits and n >= GRAPHS[case.graph].n_nodes:
                found.append(case)
    return found[:count]


def components(case: Case) -> int:
    return int(case.problem.removeprefix("ppca-"))


def data_of(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(crc32(" ".join(case).encode()))
    X, y = tables.change_units(*tables.load(case.table), case.units, rng)
    order = rng.permutation(len(y))
    if case.order == "sorted":
        order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    if case.problem == "logistic":
        middle = y.min() if len(np.unique(y)) == 2 else np.median(y)
        y = (y > middle if middle < y.max() else y >= middle).astype(float)
    return X, y


def pooled_solution(
    problem: str, X: np.ndarray, y: np.ndarray
) -> tuple[pooled.Model, pooled.Solution]:
    """Return the model with its settings, and its solution for all rows."""
    centred = X - X.mean(axis=0)
    l2 = 0.01 * float(np.median((centred**2).sum(axis=0)))
    l1 = 0.1 * float(np.median(np.abs((y - y.mean()) @ centred)))
    if problem == "logistic":
        model = pooled.Model("logistic", l2=l2 / 4)
        while np.abs((best := pooled.solve(model, X, y)).fit).max() > MOST_LOG_ODDS:
            model = model._replace(l2=10 * model.l2)
        return model, best
    if problem == "huber":
        error = np.median(np.abs(pooled.solve(pooled.Model("squared"), X, y).fit - y))
        delta = max(1.345 * float(error) / 0.6745, 1e-3 * float(y.std()))
        model = pooled.Model("huber", delta=delta)
        while (best := pooled.solve(model, X, y)).flat:
            model = model._replace(delta=2 * model.delta)
        return model, best
    model = pooled.Model(
        "squared",
        l1 if problem in ("lasso", "elastic_net") else 0.0,
        l2 if problem in ("ridge", "elastic_net") else 0.0,
    )
    return model, pooled.solve(model, X, y)


def local_problem(
    problem: str, model: pooled.Model, X: np.ndarray, y: np.ndarray, n: int
) -> Any:
    """Return the problem of a node with these rows, one of n."""
    kind = dadmm.problems.PROBLEMS[problem]
    l1, l2 = model.l1 / n, model.l2 / n
    if problem == "elastic_net":
        return kind(X, y, l1 + l2, l1 / (l1 + l2))
    settings = {"lasso": (l1,), "ridge": (l2,), "logistic": (l2,)}
    return kind(X, y, *settings.get(problem, (model.delta,) * (problem == "huber")))


class Errors(NamedTuple):
    """Distances of nodes from the pooled solution."""

    fit: float  # of predictions, at the worst node
    entries: np.ndarray  # (p,) at the worst node each; 0 where not determined
    scale: np.ndarray  # (p,)

    @property
    def entry(self) -> float:
        return float((self.entries / self.scale).max())

    def near(self, allowed: Any = 0.0) -> bool:
        """Return whether all are small; ``allowed`` are further errors of entries."""
        most = np.maximum(CLOSE * self.scale, allowed)
        return self.fit <= CLOSE and bool((self.entries <= most).all())


def errors_of(X: np.ndarray, best: pooled.Solution, theta: np.ndarray) -> Errors:
    off = theta - best.theta
    fit = np.linalg.norm(off[:, :-1] @ X.T + off[:, -1:], axis=1)
    entries = np.abs(off).max(axis=0) * best.determined
    return Errors(float(fit.max() / np.linalg.norm(best.fit)), entries, best.scale)


def false_statements(
    result: Any, errors: Errors, best: pooled.Solution, value: Any
) -> tuple[str, float, float]:
    """Return what is not true, the stated gap and the true one; value is f(theta)."""
    found, certificate, optimum = [], result.certificate, best.objective
    claimed = result.status == "certified"
    floor = GAP_FLOOR * abs(optimum) + ROUNDING * value(np.zeros_like(best.theta))
    there, gap, bound = value(result.solution), np.nan, 0.0
    true = float(there - optimum)
    least = 0.0 if certificate is None else 0.01 * certificate.gap
    if abs(there - result.objective) > max(floor, least):
        found.append("objective")
    if certificate is not None and certificate.holds:
        gap, bound = float(certificate.gap), certificate.coefficients
        off = np.abs(result.solution - best.theta) - ENTRY_FLOOR * best.scale
        if true > gap + floor:
            found.append("gap")
        if (off > bound)[best.determined].any():
            found.append("coefficient")
    if claimed and not errors.near(bound):
        found.append("answer")
    return "+".join(found), gap, true


def pooled_ppca(X: np.ndarray, M: int) -> Any:
    lengths = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    rounding = np.finfo(float).eps * max(X.shape) * max(lengths[0], np.abs(X).max())
    if len(lengths) <= M or lengths[M - 1] - lengths[M] < rounding / CLOSE:
        raise pooled.NotProved("rounding decides the subspace")
    if np.linalg.norm(lengths[M:]) < rounding / CLOSE:
        raise pooled.NotProved("there is no noise")
    return dadmm.problems.metrics.ppca_reference(X, M)


def judge_ppca(result: Any, best: Any) -> Row:
    W = result.layout.views(result.theta).W
    angle = float(dadmm.problems.metrics.subspace_angle(W, best.W).max())
    want = best.W @ best.W.T
    off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)).max() / np.linalg.norm(want)
    near = angle <= 1.0 and off <= CLOSE
    return {
        "near": int(near), "right": int(near and result.converged),
        "false": "answer" * (result.converged and not near),
        "fit_error": angle, "entry_error": float(off),
    }  # fmt: skip


def measure(case: Case, commit: str) -> Row:
    X, y = data_of(case)
    graph = GRAPHS[case.graph]
    n, d = graph.n_nodes, X.shape[1]
    row: Row = {
        "commit": commit, **case._asdict(), "role": tables.role(case.table),
        "rows": len(X), "columns": d,
    }  # fmt: skip
    is_ppca = case.problem in PPCA
    try:
        if is_ppca:
            best: Any = pooled_ppca(X, components(case))
        else:
            model, best = pooled_solution(case.problem, X, y)
    except pooled.NotProved as error:
        return row | {"status": "no reference", "reason": str(error)}
    cuts = [slice(*bounds(len(X), n, i)) for i in range(n)]
    if is_ppca:
        local = [dadmm.problems.PPCA(X[cut], components(case)) for cut in cuts]
    else:
        local = [local_problem(case.problem, model, X[cut], y[cut], n) for cut in cuts]
    start = perf_counter()
    try:
        result = dadmm.solve(local, graph)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:100]
        return row | {"status": "error", "reason": said, "near": 0, "right": 0}
    seconds = perf_counter() - start
    row |= {
        "status": result.status, "reason": result.reason,
        "iterations": result.iterations, "loop_bytes": result.traffic.bytes,
        "tree_bytes": int(result.traffic.tree_bytes.sum()),
        "seconds": round(seconds, 3),
    }  # fmt: skip
    if is_ppca:
        once = 16 * (n - 1) * (d * (d + 3) // 2 + 1)  # covariance, mean and number
        return row | judge_ppca(result, best) | {"once_bytes": once}
    errors = errors_of(X, best, result.theta)
    near = errors.near()
    value = model.over(X, y).objective
    false, gap, true = false_statements(result, errors, best, value)
    once = (d + 1) * (d + 4) // 2  # X'X and X'y, with the column of ones
    return row | {
        "near": int(near),
        "right": int(near and result.converged), "false": false,
        "fit_error": errors.fit, "entry_error": errors.entry,
        "determined": int(best.determined.sum()), "gap": gap, "true_gap": true,
        "optimum": float(best.objective),
        "once_bytes": 16 * (n - 1) * once if model.loss == "squared" else "",
    }  # fmt: skip


def truth(row: Row, name: str) -> bool:
    """Return a flag of a row; an empty cell is false."""
    return str(row.get(name) or "0") == "1"


def middle(rows: Sequence[Row], name: str, unit: float = 1.0, q: float = 0.5) -> str:
    """Return a quantile of a column as text, or nothing if the column is empty."""
    values = [float(row[name]) for row in rows if row.get(name) not in (None, "")]
    return f"{np.quantile(values, q) / unit:.0f}" if values else ""


def summary(rows: Sequence[Row]) -> list[Any]:
    """Return the cells of `HEAD` for some rows."""
    count = len(rows)
    right = sum(truth(row, "right") for row in rows)
    sent = ("loop_bytes", "tree_bytes", "once_bytes")
    return [
        count, f"{right} ({100 * right / count:.0f} %)",
        sum(bool(row.get("false")) for row in rows),
        sum(row["status"] == "not converged" for row in rows),
        middle(rows, "iterations"), middle(rows, "iterations", q=0.9),
        *(middle(rows, name, 1e3) for name in sent),
    ]  # fmt: skip


def by_group(name: str, rows: Sequence[Row]) -> None:
    """Print a table by the values of a column; numbers are medians."""
    lines = []
    for value in sorted({str(row[name]) for row in rows}):
        lines.append([value, *summary([row for row in rows if row[name] == value])])
    print()
    print_markdown((name, *HEAD), [*lines, ["all", *summary(rows)]])


def print_report(rows: Sequence[Row]) -> None:
    """Print the tables, and all cases that are not right or have a false statement."""
    judged = [row for row in rows if row["status"] != "no reference"]
    commits = ", ".join(sorted({str(row["commit"]) for row in judged}))
    print(f"{len(judged)} cases; dadmm at {commits}. {len(rows) - len(judged)} cases")
    print("without a trustworthy pooled solution are left out.")
    for name in ("problem", "units", "graph", "order", "role", "status"):
        by_group(name, judged)
    bad = [row for row in judged if not truth(row, "right") or row.get("false")]
    judgement = ("status", "false", "near", "fit_error", "entry_error", "iterations")
    names = (*Case._fields, *judgement)
    print()
    print_markdown(names, ([written(row.get(k, "")) for k in names] for row in bad))


def chosen(text: str) -> dict[str, str]:
    words = dict(part.partition("=")[::2] for part in text.split(","))
    if not words.keys() <= set(Case._fields):
        raise ArgumentTypeError(f"name some of {', '.join(Case._fields)}")
    return words


def commit_of(folder: str) -> str:
    """Return the last commit that changed a folder, with a + if files differ now."""
    ask = ("log", "-1", "--format=%h", "--"), ("status", "--porcelain", "--")
    last, changed = (
        subprocess.run(
            ["git", *words, folder], cwd=ROOT, text=True, check=True,
            stdout=subprocess.PIPE,
        ).stdout.strip()
        for words in ask
    )  # fmt: skip
    return last + "+" * bool(changed)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--ppca", action="store_true", help="PPCA, 1 to 5 components")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CASES} cases")
    parser.add_argument("--fresh", action="store_true", help="the fresh tables only")
    parser.add_argument("--only", type=chosen, default={}, help="table=...,units=...")
    parser.add_argument("--csv", type=Path, help="add the rows here")
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    names = tables.FRESH if given.fresh else (*tables.SEEN, *tables.OPEN)
    problems = PPCA if given.ppca else PROBLEMS
    count = 0 if given.report else FRESH_CASES if given.fresh else CASES
    cases = sample(names, count, problems)[: QUICK_CASES if given.quick else None]
    wanted = [c for c in cases if given.only.items() <= c._asdict().items()]
    there = given.csv and given.csv.exists()
    rows: list[Row] = list(read_rows(given.csv)) if there else []
    known = {tuple(row[word] for word in Case._fields) for row in rows}
    commit = commit_of("dadmm")
    for k, case in enumerate(wanted, start=1):
        if case not in known:
            row = measure(case, commit)
            rows.append(row)
            told = f"{row['status']}, near: {row.get('near')}"
            say(f"{k} of {len(wanted)}: {' '.join(case)}: {told}")
            if given.csv:
                write_rows(rows, given.csv)
    print_report(rows)


if __name__ == "__main__":
    main()
