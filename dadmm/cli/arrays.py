"""The arrays of result.npz, and the files of imputed samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix
from dadmm.data.textfiles import Names
from dadmm.problems import IncompletePPCA, StructureFromMotion, motion
from dadmm.results.writing import write_arrays
from dadmm.solver.result import Result


def build(
    world: World,
    result: Result,
    features: Names,
    frames: Matrix | None,
    adrift: bool,
) -> dict[str, Any]:
    """Return the arrays of result.npz, all of them on rank 0.

    These are the parts of theta by name, the edges with their penalties and traffic,
    structure and motion of sfm, and the names of the features, if there are any.
    ``frames`` is the motion of all cameras, as `gather_motion` returns it.
    """
    found: dict[str, Any] = result.layout.views(result.theta)._asdict()
    found |= {"edges": result.nodes[result.topology.edges], "eta": result.eta}
    if frames is not None and world.rank == 0:
        found |= _reconstruct(frames, result, adrift)
    found |= {} if features is None else {"feature_names": np.array(features)}
    traffic = result.traffic._asdict().items()
    return found | {name: value for name, value in traffic if name.startswith("edge_")}


def gather_motion(
    world: World, problems: dict[int, Any], result: Result
) -> Matrix | None:
    """Return the motion of all cameras on rank 0, or None if the problem is not sfm."""
    cameras = {i: p for i, p in problems.items() if isinstance(p, StructureFromMotion)}
    if not cameras:
        return None
    return world.gather(np.vstack([p.motion(result.of(i)) for i, p in cameras.items()]))


def _reconstruct(frames: Matrix, result: Result, adrift: bool) -> dict[str, Any]:
    """Return structure and motion of sfm after the metric upgrade.

    A structure that is ``adrift``, known up to a translation, is centred at the origin.
    """
    structure = result.layout.views(result.theta.mean(axis=0)).W
    if adrift:
        structure = structure - structure.mean(axis=0)
    return motion.upgrade(frames, structure)._asdict()


def write_imputed(
    folder: Path, problems: dict[int, Any], samples: dict[int, Matrix], result: Result
) -> None:
    """Write the imputed samples of each node to ``imputed-00000.npz`` and so on.

    A file has the filled ``samples``, the ``variances`` of the imputed entries, and the
    ``latent`` means. Only the owner can read it.
    """
    for i, problem in problems.items():
        if isinstance(problem, IncompletePPCA):
            filled, variances = problem.impute(result.of(i), samples[i])
            latent = problem.latent(result.of(i), samples[i])
            found = {"samples": filled, "variances": variances, "latent": latent}
            path = folder / f"imputed-{i:05d}.npz"
            write_arrays(path, found, private=True)
