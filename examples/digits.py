"""
Principal components of digits on twelve nodes
==============================================

Find the principal components of all rows, although each node has a part of them.

The rows are images of handwritten digits. Each of twelve nodes, joined in a grid, has a
block of them. D-PPCA gives every node the components of the whole collection, which no
node would find alone.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import dadmm
from dadmm.show.style import STYLE

plt.rcParams.update(STYLE)

# %%
# The data are 1797 images of 8 x 8 pixels. ``split`` gives each node a block of rows of
# nearly equal size.

samples = load_digits().data
n_nodes, n_components = 12, 8
shards = dadmm.shard.split(samples, n_nodes)
print([len(rows) for rows in shards], "rows by node")

# %%
# The default scheme and start need no settings. To compare, we compute the components
# of all rows in one place, and of each node alone.

problems = [dadmm.problems.PPCA(rows, n_components) for rows in shards]
result = dadmm.solve(problems, dadmm.Topology.grid(n_nodes))
found = result.layout.views(result.theta).W  # (nodes, 64, components)

pooled = dadmm.metrics.ppca_reference(samples, n_components).W
alone = np.array([dadmm.metrics.ppca_reference(x, n_components).W for x in shards])
angle = dadmm.metrics.subspace_angle(found, pooled).max()
angles_alone = dadmm.metrics.subspace_angle(alone, pooled)
print(f"{result.status} after {result.iterations} iterations")
print(f"largest angle of a node to the components of all rows: {angle:.3f} degrees")
print(f"a node alone: {angles_alone.min():.0f} to {angles_alone.max():.0f} degrees")

# %%
# A run cannot know the components of all rows, but it can bound the angle to them, by
# sums over the network at its end:

print(f"bound: {result.subspace_bound.angle:.3f} degrees")

# %%
# The columns of W span the subspace. Its principal axes are the left singular vectors,
# here with the largest entry positive.


def axes_of(W):
    axes = np.linalg.svd(W, full_matrices=False)[0].T
    largest = np.abs(axes).argmax(axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]


rows = {
    "all rows in\none place": pooled,
    "D-PPCA,\nany node": found[0],
    "node 0\nalone": alone[0],
}
figure, grid = plt.subplots(3, n_components, figsize=(8, 3.5), layout="constrained")
for line, (name, W) in zip(grid, rows.items(), strict=True):
    for k, (axis, image) in enumerate(zip(line, axes_of(W), strict=True)):
        most = np.abs(image).max()
        axis.imshow(image.reshape(8, 8), cmap="PuOr", vmin=-most, vmax=most)
        axis.set(xticks=[], yticks=[])
        axis.spines[["top", "right"]].set_visible(True)
        grid[0, k].set_title(f"component {k + 1}", fontsize=8)
    line[0].set_ylabel(name)
figure.suptitle("Principal components as images: orange negative, purple positive")
figure.savefig("digits.png")
