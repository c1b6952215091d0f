"""Ten hospitals learn one classifier from rows that each keeps to itself.

    python examples/hospitals.py [--out DIR]

The data are the breast cancer data of scikit-learn (569 patients, 30 measurements).
Every hospital has its own mix of patients, and one has a single diagnosis only. They
agree on a logistic regression, in the units in which they measure. First, summaries of
the rows (496 numbers) pass along a tree whose root is one hospital. Then messages go to
neighbours and hold 31 parameters. What these reveal is in docs/privacy.md. All nodes
are in one process here. Needs the extras `sklearn` and `plot`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression as Pooled
from sklearn.model_selection import train_test_split

import dadmm
from dadmm import Topology
from dadmm.problems import LogisticRegression

HOSPITALS, ALPHA = 10, 1.0


def patients(seed: int = 0):
    """Return each hospital's rows and labels, and a test set that none has."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    # the sicker a patient looks, the later the hospital: mixes differ strongly
    rng = np.random.default_rng(seed)
    severity = X[:, 0] / X[:, 0].std() + 0.7 * rng.standard_normal(len(X))
    parts = np.array_split(np.argsort(severity), HOSPITALS)
    return [(X[rows], y[rows]) for rows in parts], X_test, y_test


def accuracy(coef, intercept, X, y) -> float:
    return float(np.mean((X @ coef + intercept > 0) == y))


def run(seed: int = 0) -> dict:
    """Return test accuracies: each hospital alone, all together, and pooled."""
    shards, X_test, y_test = patients(seed)
    topology = Topology.random_geometric(HOSPITALS, seed=1)
    problems = [LogisticRegression(X, y, ALPHA / HOSPITALS) for X, y in shards]
    result = dadmm.solve(problems, topology)

    pooled = Pooled(C=1.0 / ALPHA, tol=1e-10, solver="newton-cholesky")
    pooled.fit(
        np.vstack([X for X, _ in shards]), np.concatenate([y for _, y in shards])
    )
    best = np.append(pooled.coef_, pooled.intercept_)
    alone = []
    for X, y in shards:
        own = LogisticRegression(X, y, ALPHA / HOSPITALS)
        theta = own.prox(own.init(np.random.default_rng(0)), None, np.zeros(31), 0.0)
        alone.append(accuracy(*own.layout.views(theta), X_test, y_test))
    return {
        "patients": [len(y) for _, y in shards],
        "benign": [float(y.mean()) for _, y in shards],
        "alone": alone,
        "together": accuracy(*result.layout.views(result.solution), X_test, y_test),
        "pooled": accuracy(best[:30], best[30], X_test, y_test),
        "status": result.status,
        "off": float(np.abs(result.solution - best).max()),
        "bound": float(result.certificate.coefficients.max()),
        "iterations": result.iterations,
        "bytes": result.traffic.bytes,
    }


def draw(found: dict, out: Path) -> Path:
    """Draw the accuracies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.bar(range(HOSPITALS), found["alone"], color="#56B4E9", label="alone")
    axis.axhline(found["together"], color="#D55E00", label="together (dadmm)")
    axis.axhline(found["pooled"], color="black", linestyle=":", label="all data pooled")
    mixes = zip(found["patients"], found["benign"], strict=True)
    names = [f"{n}\n{100 * b:.0f} %" for n, b in mixes]
    axis.set_xticks(range(HOSPITALS), names)
    axis.set(
        ylim=(0.0, 1.0), ylabel="accuracy on unseen patients",
        xlabel="patients of the hospital, and how many of them are benign",
    )  # fmt: skip
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    path = out / "hospitals.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    found = run()
    print("hospital  patients  benign  accuracy alone")
    rows = zip(found["patients"], found["benign"], found["alone"], strict=True)
    for i, row in enumerate(rows):
        print(f"{i:8d}  {row[0]:8d}  {100 * row[1]:4.0f} %  {100 * row[2]:6.1f} %")
    print(
        f"together: {100 * found['together']:.1f} %; "
        f"pooled: {100 * found['pooled']:.1f} %"
    )
    print(
        f"{found['status']}: coefficients within {found['bound']:.0e} of the pooled "
        f"ones (in fact {found['off']:.0e}), {found['iterations']} iterations, "
        f"{found['bytes']:,} bytes"
    )
    print(f"picture: {draw(found, out)}")


if __name__ == "__main__":
    main()
