"""
Cameras that lose a third of their tracks
=========================================

Reconstruct an object in three dimensions from several cameras, although each camera
loses track of some points, and predict where the lost points were.

The data are a synthetic turntable. Each of five cameras has some of the frames, and
starts from its own first frame. Its rows stay with it: a camera sends parameters to its
two neighbours on a ring.
"""

import matplotlib.pyplot as plt
import numpy as np

import dadmm
from dadmm.show.style import BLUE, ORANGE, STYLE

plt.rcParams.update(STYLE)

# %%
# The data
# --------
# ``tracks`` has the x and y of each frame as two rows, in pixels, and a column for each
# point. In each frame a block of points is hidden, another block for each camera, and
# some points are lost at random. A lost position is NaN.

n_cameras = 5
tracks, truth = dadmm.datasets.turntable()
n_frames, n_points = len(tracks) // 2, tracks.shape[1]

rng = np.random.default_rng(0)
lost = rng.random((n_frames, n_points)) < 0.1
camera_of = np.arange(n_frames) * n_cameras // n_frames
for frame, camera in enumerate(camera_of):
    first = camera * n_points // n_cameras
    lost[frame, (first + np.arange(n_points // 4)) % n_points] = True
seen = np.where(np.repeat(lost, 2, axis=0), np.nan, tracks)
missing = np.isnan(seen).mean()
print(f"{100 * missing:.0f} % of the positions are missing")

# %%
# The run
# -------
# ``split_frames`` gives each camera its block of frames. Structure from motion is PPCA
# of the rows, so gaps need no special treatment here: each row contributes the
# likelihood of the points that it has.
#
# A structure is known up to a linear map, so the largest angle between the subspaces
# measures the error. We compute it once with all tracks and once with gaps.
#
# What leaves a camera: in each iteration the structure W, mu and the precision a, to
# both neighbours. The first W is its first frame, moved by 0.1, so the neighbours see
# that frame. When all cameras meet the stopping rule, and at the end, they also add up
# a 3 x 3 matrix of second moments of the motion and their parameters, along a tree.


def reconstruct(rows):
    shards = dadmm.shard.split_frames(rows, n_cameras)
    problems = [dadmm.problems.StructureFromMotion(shard) for shard in shards]
    return shards, problems, dadmm.solve(problems, dadmm.Topology.ring(n_cameras))


shape = truth - truth.mean(axis=0)
angles, shapes = {}, {}
for name, rows in {"all tracks": tracks, "with gaps": seen}.items():
    shards, problems, result = reconstruct(rows)
    W = result.layout.views(result.theta).W  # (cameras, points, 3)
    W = W - W.mean(axis=1, keepdims=True)  # a camera's position is its own
    angles[name] = dadmm.metrics.subspace_angle(W, shape).max()
    shapes[name] = W[0] @ np.linalg.lstsq(W[0], shape)[0]  # in the frame of the truth
    print(f"{name}: {angles[name]:.2f} degrees off, {result.iterations} iterations")
    sent = result.traffic.bytes // n_cameras, result.traffic.tree_bytes.sum()
    print(f"  {sent[0]:,} bytes from a camera to its neighbours, {sent[1]:,} in sums")

# %%
# The missing positions
# ---------------------
# ``impute`` returns the expectation of each missing entry, and its variance. Each
# camera fills its own gaps. ``shards``, ``problems`` and ``result`` are from the run
# with gaps.

filled, variances = [], []
for shard, problem, theta in zip(shards, problems, result.theta, strict=True):
    mean, variance = problem.impute(theta, shard)
    filled.append(mean)
    variances.append(variance)
gap = np.isnan(seen)
error = np.sqrt(np.mean((np.vstack(filled) - tracks)[gap] ** 2))
spread = np.sqrt(np.mean(np.vstack(variances)[gap]))
print(f"missing positions are found to {error:.2f} pixels; predicted {spread:.2f}")

# %%
# The predicted error is close to the true one, and to the noise of the tracker, 0.5
# pixels (the default of ``turntable``).

figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 4), layout="constrained")
left.imshow(lost, cmap="Greys", aspect="auto", interpolation="none")
left.set(xlabel="point", ylabel="frame", title=f"lost points, black ({missing:.0%})")
right.plot(*shape[:, :2].T, "o", color="0.75", markersize=9, label="truth")
looks = {"all tracks": (ORANGE, "x"), "with gaps": (BLUE, ".")}
for name, (colour, marker) in looks.items():
    label = f"{name}: {angles[name]:.2f}° off"
    right.plot(*shapes[name][:, :2].T, marker, color=colour, markersize=6, label=label)
right.set(xlabel="x (pixels)", ylabel="y (pixels)", aspect="equal")
right.set_title("the points of a cube, from above")
figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3)
figure.savefig("cameras.png")
