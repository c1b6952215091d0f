"""
A scratched photograph, repaired in strips
==========================================

Fill in missing entries of data that are stored in several places.

Each of eight nodes has a strip of a scratched photograph. The nodes agree on one model
of small patches by D-PPCA over a chain, and each repairs its own strip. In the
iterations nodes exchange parameters, not pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_sample_image

import dadmm
from dadmm.show.style import STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %%
# The data
# --------
# The photograph is one of scikit-learn's, in grey and at half its size. Scratches and
# single pixels are lost; a lost pixel is NaN.

n_nodes, height, width = 8, 192, 320
photo = load_sample_image("china.jpg").mean(axis=2)[20 : 20 + 2 * height]
photo = photo[:, : 2 * width].reshape(height, 2, width, 2).mean(axis=(1, 3))

rng = np.random.default_rng(0)
lost = rng.random(photo.shape) < 0.15
y, x = np.mgrid[:height, :width]
for _ in range(14):
    angle, where = rng.uniform(0, np.pi), rng.uniform(0, width)
    away = np.cos(angle) * (x - where) + np.sin(angle) * (y - height / 2)
    lost |= np.abs(away) < 1.2
scratched = np.where(lost, np.nan, photo)
strips = np.vsplit(scratched, n_nodes)  # one for each node

# %%
# One model for all strips
# ------------------------
# A sample is a patch of 8 x 8 pixels, a row of 64 entries with gaps. Patches overlap.
# We stop after a few iterations: that is enough for a picture, and the status says that
# the run has not converged.

side, step = 8, 4


def patches(strip):
    """Return overlapping patches as rows (n, 64)."""
    windows = sliding_window_view(strip, (side, side))[::step, ::step]
    return windows.reshape(-1, side * side)


problems = [dadmm.problems.PPCA(patches(strip), n_components=12) for strip in strips]
result = dadmm.solve(
    problems, dadmm.Topology.chain(n_nodes), stopping=dadmm.Stopping(max_iter=20)
)
print(result.status, "after", result.iterations, "iterations")

# %%
# Each node repairs its strip
# ---------------------------
# ``impute`` fills the gaps of a node's patches. A pixel that is lost becomes the mean
# of all patches that cover it.


def repair(strip, rows):
    """Return the strip with its gaps filled from patches (n, 64)."""
    total, count = np.zeros(strip.shape), np.zeros(strip.shape)
    corners = [
        (a, b)
        for a in range(0, strip.shape[0] - side + 1, step)
        for b in range(0, strip.shape[1] - side + 1, step)
    ]
    for (a, b), patch in zip(corners, rows, strict=True):
        total[a : a + side, b : b + side] += patch.reshape(side, side)
        count[a : a + side, b : b + side] += 1
    return np.where(np.isnan(strip), total / count, strip)


repaired = []
for strip, problem, theta in zip(strips, problems, result.theta, strict=True):
    filled, variance = problem.impute(theta, patches(strip))
    repaired.append(repair(strip, filled))
repaired = np.vstack(repaired)


def error(image):
    """Return the root mean square error of the lost pixels, in grey levels of 256."""
    return np.sqrt(np.mean((image - photo)[lost] ** 2))


plain = np.where(lost, np.nanmean(scratched), photo)
print(f"error of lost pixels: {error(repaired):.1f} grey levels of 256")
print(f"with the mean grey in all gaps: {error(plain):.1f}")

# %%
# White lines separate the strips of the nodes. The last panel shows the error of each
# pixel.

images = {
    "the photograph": photo,
    f"{lost.mean():.0%} of the pixels lost (orange)": scratched,
    f"repaired by {n_nodes} nodes": repaired,
}
figure, grid = plt.subplots(2, 2, figsize=(7.5, 4.6), layout="constrained")
for axis, (title, image) in zip(grid.flat, images.items(), strict=False):
    axis.imshow(image, cmap="gray", vmin=0, vmax=255)
    axis.set_facecolor(VERMILLION)  # shows through where pixels are lost
    axis.set_title(title)
for row in range(1, n_nodes):
    grid[0, 1].axhline(row * height / n_nodes, color="white", linewidth=0.8)
wrong = grid[1, 1].imshow(np.abs(repaired - photo), cmap="magma_r", vmin=0, vmax=64)
grid[1, 1].set_title(f"error of lost pixels: {error(repaired):.0f} grey levels")
figure.colorbar(wrong, ax=grid[1, 1], shrink=0.8, extend="max", label="grey levels")
for axis in grid.flat:
    axis.set(xticks=[], yticks=[])
figure.savefig("inpainting.png", dpi=120)
