"""
Three hospitals, one model
==========================

Fit one model to tables that stay where they are, and predict new rows.

Three hospitals have a table of patients each, and want to know who will be readmitted.
The tables differ: in the order of their columns, their wards, and their missing
entries. No hospital has patients of all wards, and the common model covers them all.
The folder ``examples/hospitals`` has the files, and :doc:`the same fit with commands of
the shell </examples/hospitals/README>`.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.show.style import BLACK, BLUE, GREEN, ORANGE, STYLE

plt.rcParams.update(STYLE)

# %%
# The tables
# ----------
# ``read_table`` reads CSV and Parquet files. ``sys.argv[0]`` is the path of this
# program.

folder = Path(sys.argv[0]).parent / "hospitals"
tables = [dadmm.read_table(folder / f"site-{i}.csv") for i in range(3)]
for i, table in enumerate(tables):
    wards = ", ".join(sorted(set(table.column("ward"))))
    print(
        f"hospital {i}: {table.n_rows} rows, {len(table.names)} columns; wards: {wards}"
    )

# %%
# Columns are agreed
# ------------------
# ``encode`` lets the nodes agree on columns, categories and classes. They send names,
# categories, and here also sums, from which they know the means of all rows. No row is
# sent. ``features`` leaves out the numbers of patients and the other outcomes, and a
# missing entry becomes the mean over all hospitals.

graph = dadmm.Topology.ring(3)
encoding, parts = dadmm.encode(
    tables,
    graph,
    target="readmitted",
    classify=True,
    on_missing="mean",
    features=["age", "sex", "ward", "pressure", "smoker"],
)
names = encoding.feature_names
print(len(names), "columns of numbers; classes:", ", ".join(encoding.classes))

# %%
# The fit
# -------
# One problem for each hospital. The penalty ``alpha`` of the whole problem is 1, and
# each hospital has a third of it. In the iterations hospitals exchange parameters.
# Set-up and end also send sums over rows; :doc:`/docs/privacy` lists what leaves a
# node.

problems = [
    dadmm.problems.LogisticRegression(part.X, part.y, alpha=1 / 3) for part in parts
]
result = dadmm.solve(problems, graph)
coef, bound = result.parts(0).coef, result.certificate.coefficients
print(f"{result.status} after {result.iterations} iterations")
for name, value, error in zip(names, coef, bound, strict=False):
    print(f"{name:16} {value:8.4f}, off by at most {error:.0e}")

# %%
# New patients
# ------------
# A ``Model`` knows names, categories and means, so new rows are a table as it comes. It
# can be saved, and loaded elsewhere by ``dadmm.load_model``.

model = dadmm.Model.of(result, "logistic", encoding)
new = dadmm.read_table(folder / "new.csv")
labels = model.predict(new)
odds = model.predict_proba(new)[:, 1]
print(f"{(labels == 'yes').sum()} of {len(labels)} new patients: yes")
print("the first three probabilities:", odds[:3].round(3))

# %%
# What each hospital would find alone
# -----------------------------------
# A hospital alone has fewer patients, so its estimates differ from the common ones.
# Wards are compared with cardiology, the first category. Two of the hospitals have no
# cardiology, so the picture has wards of the common model only. A coefficient is for a
# step of one standard deviation, so one axis serves all columns.

alone = [
    dadmm.solve(
        [dadmm.problems.LogisticRegression(part.X, part.y, alpha=1.0)],
        dadmm.Topology.chain(1),
    )
    .parts(0)
    .coef
    for part in parts
]
scale = np.std(np.vstack([part.X for part in parts]), axis=0)

figure, axis = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
lines = np.arange(len(names))
wards = np.array([name.startswith("ward=") for name in names])
looks = ((ORANGE, "s"), (GREEN, "^"), (BLUE, "v"))
for i, (found, (colour, marker)) in enumerate(zip(alone, looks, strict=True)):
    axis.plot(
        (found * scale)[~wards],
        lines[~wards] + 0.1 * (i - 1),
        marker,
        color=colour,
        label=f"hospital {i} alone",
    )
axis.plot(coef * scale, lines, "D", color=BLACK, markersize=7, label="all three")
axis.axvline(0, color="0.7", linewidth=0.8)
axis.set(yticks=lines, yticklabels=names)
axis.set_xlabel("change of the log odds of readmission, by one standard deviation")
axis.set_title("What raises the risk of readmission, of synthetic patients")
axis.invert_yaxis()
axis.grid(axis="y")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
figure.savefig("hospitals.png")
