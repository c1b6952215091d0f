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
from dadmm.show.style import BLUE, GREY, STYLE, VERMILLION

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
# All maps have the same colours. Values beyond the scale have the colour of its end.

figure, grid = plt.subplots(
    2, 2, figsize=(7, 6), sharex=True, sharey=True, layout="constrained"
)
network, *maps = grid.ravel()
for i, j in graph.edges:
    network.plot(*homes[[i, j]].T, color=GREY, linewidth=0.8, zorder=1)
network.plot(*homes.T, "o", color=BLUE, label="sensor")
network.plot(*homes[broken].T, "X", color=VERMILLION, markersize=9, label="broken")
network.set(title="the network", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
network.legend(loc="upper left")

low, high = fields["truth"].min(), fields["truth"].max()
for axis, (name, field) in zip(maps, fields.items(), strict=True):
    image = axis.imshow(
        field, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=high, cmap="cividis"
    )
    off = f": off by {errors[name]:.2g} degrees" if name in errors else ""
    axis.set_title(name + off)
for axis in grid[1]:
    axis.set_xlabel("x")
for axis in grid[:, 0]:
    axis.set_ylabel("y")
figure.colorbar(image, ax=grid, shrink=0.7, extend="both", label="temperature (°C)")
figure.savefig("sensors.png")
