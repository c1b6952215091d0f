"""
Sensors of which a fifth are broken
===================================

Fit a regression that a few bad nodes cannot spoil, on a graph made from positions.

Thirty sensors measure a temperature field. Each has its position and its own readings,
and sends parameters to the sensors within reach. All agree on the coefficients of a
smooth field: by least squares, which the broken sensors spoil, and by Huber's loss,
which they do not.
"""

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.drawing.style import STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %%
# The data
# --------
# The field is a sum of products of low cosines, so it is linear in its coefficients.
# Each sensor moves about a little and takes twenty readings. Broken sensors often
# return their maximum, 40 degrees.

n_sensors, n_readings, n_broken = 30, 20, 6
waves = np.pi * np.arange(3)


def features(places):
    """Return the cosines at places (..., 2), shape (..., 9)."""
    x, y = np.cos(places[..., :1] * waves), np.cos(places[..., 1:] * waves)
    return (x[..., :, None] * y[..., None, :]).reshape(*places.shape[:-1], -1)


rng = np.random.default_rng(3)
places = 0.3 * rng.random((n_sensors, n_readings, 2))
places += 0.7 * rng.random((n_sensors, 1, 2))
truth = 3.0 * rng.standard_normal(9)
readings = features(places) @ truth + 0.3 * rng.standard_normal((n_sensors, n_readings))
broken = rng.choice(n_sensors, n_broken, replace=False)
stuck = rng.random((n_broken, n_readings)) < 0.7
readings[broken] = np.where(stuck, 40.0, readings[broken])

# %%
# The graph
# ---------
# Two sensors are neighbours if they are closer than a radius. A graph must be
# connected; ``from_edges`` raises an error if it is not, so we take the smallest radius
# that works.

homes = places.mean(axis=1)
apart = np.linalg.norm(homes[:, None] - homes, axis=-1)
for radius in np.arange(0.1, 1.5, 0.01):
    near = np.argwhere(np.triu(apart < radius, 1))
    try:
        graph = dadmm.Topology.from_edges(n_sensors, near)
        break
    except dadmm.TopologyError:  # not connected yet
        continue
print(f"{graph}, radius {radius:.2f}")

# %%
# The two fits
# ------------
# The status "certified" says that the distance from the minimum of the sum over all
# sensors is bounded. It says nothing about the data: least squares finds its minimum,
# and the field is still wrong.

pairs = list(zip(features(places), readings, strict=True))
fits = {
    "least squares": [
        dadmm.problems.LeastSquares(X, y, fit_intercept=False) for X, y in pairs
    ],
    "Huber": [
        dadmm.problems.Huber(X, y, delta=0.5, alpha=1e-3, fit_intercept=False)
        for X, y in pairs
    ],
}
ticks = np.linspace(0, 1, 60)
square = np.stack(np.meshgrid(ticks, ticks), axis=-1)
fields, errors, statuses = {"truth": features(square) @ truth}, {}, {}
for name, problems in fits.items():
    result = dadmm.solve(problems, graph)
    fields[name] = features(square) @ result.solution
    errors[name] = np.sqrt(np.mean((fields[name] - fields["truth"]) ** 2))
    statuses[name] = result.status
    print(f"{name}: {result.status}, off by {errors[name]:.2f} degrees")

# %%
# The picture has the same colours in all panels. Values beyond the scale have the
# colour of its end.

low, high = fields["truth"].min(), fields["truth"].max()
figure, axes = plt.subplots(1, 3, figsize=(9, 3.5), sharey=True, layout="constrained")
for axis, (name, field) in zip(axes, fields.items(), strict=True):
    image = axis.imshow(
        field, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=high, cmap="cividis"
    )
    off = f": off by {errors[name]:.2g} degrees" if name in errors else " and network"
    axis.set(title=name + off, xlabel="x", xticks=[0, 0.5, 1])
axes[0].set_ylabel("y")
for i, j in graph.edges:
    axes[0].plot(*homes[[i, j]].T, color="white", linewidth=0.6, alpha=0.7)
axes[0].plot(*homes.T, "o", color="white", markeredgecolor="black", label="sensor")
axes[0].plot(
    *homes[broken].T, "X", color=VERMILLION, markeredgecolor="white", markersize=9,
    label="broken",
)  # fmt: skip
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
figure.colorbar(image, ax=axes, shrink=0.85, extend="both", label="temperature (°C)")
figure.savefig("sensors.png")
