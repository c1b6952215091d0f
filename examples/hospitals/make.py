"""Write the files of this folder: synthetic patients of three hospitals.

    python examples/hospitals/make.py

The files differ in the order of their columns, their wards, the outcomes that occur,
their missing entries, and one has a column that the others lack.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
WARDS = {"surgery": 0.4, "medicine": 0.0, "cardiology": 0.8, "geriatrics": -0.5}
OUTCOMES = ("home", "care", "rehabilitation")


def patients(rng, n, first, wards, outcomes, age):
    """Return the columns of n patients."""
    ward = rng.choice(wards, n)
    years = np.clip(rng.normal(age, 15, n), 18, 99).round()
    sex = rng.choice(["F", "M"], n)
    pressure = rng.normal(110 + 0.4 * years, 14, n).round(1)
    smoker = rng.choice(["no", "yes", "former"], n, p=[0.5, 0.2, 0.3])
    risk = (
        0.04 * (years - 60)
        + 0.02 * (pressure - 135)
        + 0.5 * (sex == "M")
        + np.array([WARDS[w] for w in ward])
        + 0.8 * (smoker == "yes")
        - 0.5
    )
    place = (risk[:, None] > rng.logistic(size=(n, len(outcomes) - 1))).sum(axis=1)
    return {
        "patient": [f"P{first + k}" for k in range(n)],
        "age": years.astype(int).tolist(),
        "sex": sex.tolist(),
        "ward": ward.tolist(),
        "pressure": pressure.tolist(),
        "smoker": smoker.tolist(),
        "readmitted": np.where(risk > rng.logistic(size=n), "yes", "no").tolist(),
        "outcome": [outcomes[k] for k in place],
        "days": rng.poisson(np.exp(1.2 + 0.4 * risk)).tolist(),
        "cost": (2.0 + 1.5 * risk + rng.normal(size=n)).round(3).tolist(),
    }


def write(name, columns):
    with open(FOLDER / name, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


def lose(rng, columns, names, share):
    """Empty some cells of these columns."""
    for name in names:
        for k in np.flatnonzero(rng.random(len(columns[name])) < share):
            columns[name][k] = ""


def main() -> None:
    rng = np.random.default_rng(18)
    north = patients(rng, 60, 100, ["medicine", "surgery"], OUTCOMES, 55)
    write("site-0.csv", north)
    south = patients(rng, 45, 200, ["medicine", "cardiology"], OUTCOMES, 65)
    lose(rng, south, ["pressure", "smoker"], 0.12)
    write("site-1.csv", dict(reversed(south.items())))
    east = patients(rng, 35, 300, ["geriatrics", "medicine"], OUTCOMES[:2], 78)
    lose(rng, east, ["age", "pressure"], 0.08)
    east["bed"] = rng.integers(1, 20, 35).tolist()
    write("site-2.csv", east)
    new = patients(rng, 25, 400, list(WARDS), OUTCOMES, 65)
    lose(rng, new, ["pressure", "smoker"], 0.1)
    held = ("readmitted", "outcome", "days", "cost")
    write("new.csv", {name: new[name] for name in new if name not in held})


if __name__ == "__main__":
    main()
