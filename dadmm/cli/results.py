"""The results of a run: its summary, its arrays, and files of imputed samples."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from dadmm.cli import models
from dadmm.cli.job import Job
from dadmm.cli.models import Fit
from dadmm.comm.world import World
from dadmm.core.documents import write_arrays, writing
from dadmm.core.layout import Matrix
from dadmm.core.version import __version__
from dadmm.data.encoding import Rows
from dadmm.data.files import Names
from dadmm.data.frame import label
from dadmm.graphs import placement
from dadmm.problems import IncompletePPCA, StructureFromMotion, builder, sfm
from dadmm.runs.summary import Named, Summary, known
from dadmm.solver.ending import advise
from dadmm.solver.result import Result

PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")
SEEDS = ("seed", "data_seed", "topology_seed", "drop_seed")


def summarise(job: Job, fit: Fit) -> Summary:
    """Return the content of summary.json, on rank 0; all ranks call it."""
    seconds = {"total": monotonic() - job.started, "set_up": job.set_up}
    world, config, result, machines = job.world, job.config, job.result, job.machines
    own = list(job.data.rows.values())
    measured = job.targets.metrics(world, result, own)
    calls, n_bytes = world.sent()
    if world.rank:
        return Summary()
    homes = machines * result.topology.n_nodes
    if world.hosts is not None:
        homes = [machines[rank] for rank in world.hosts.tolist()]
    far = placement.crosses_hosts(result.topology, homes)
    columns = next(own[0].blocks()).X  # or some of the rows, if they are in a file
    columns = columns if isinstance(columns, np.ndarray) else None  # sparse
    named = names_of(result, job.features, fit)
    found = Summary.of(result, named, seconds)
    found |= {
        "advice": advise(result, columns),
        "resumed_after": job.checkpoints.start,  # 0 for a run that was not resumed
        "record_every": job.rows.step,  # iterations from a row to the next
        "edges_between_hosts": int(far.sum()) // 2,
        "bytes_between_hosts": int(result.traffic.edge_bytes[far].sum()),
        "outside_calls": calls,  # of set-up and end
        "outside_bytes": n_bytes,
        "metrics": {"consensus_error": found["consensus"]["error"], **measured},
        "seeds": {name: getattr(config, name) for name in SEEDS},
        "versions": versions(),
        "mpi_library": world.library,
        "ranks": world.size,
        "hosts": {name: machines.count(name) for name in sorted(set(machines))},
        "node_hosts": homes,
    }
    if named.coefficients:
        found["coefficients"] = dict(named.coefficients)
        has_alpha = builder.arguments(builder.find(config.problem)).takes("alpha")
        share = getattr(next(iter(job.problems.values())), "alpha", None)
        if has_alpha and share is not None:  # a class of a user need not keep it
            found["alpha"] = float(share * result.topology.n_nodes)
    if fit.linear is not None:
        found |= models.comparison(fit.linear)
    if fit.scores is not None:
        nodes = map(str, result.nodes.tolist())
        found["scores"] = fit.scores.values
        found["standard_errors"] = dict(fit.standard_errors)
        if fit.model is not None and fit.scores.by_class:
            names = map(label, fit.model.classes.tolist())
            found["rows_by_class"] = dict(zip(names, fit.scores.by_class, strict=True))
        found["rows_by_node"] = dict(zip(nodes, fit.n_rows, strict=True))
    if job.gaps:
        found["gaps"] = {"on_missing": config.on_missing, "nodes": sorted(job.gaps)}
    return found


def versions() -> dict[str, str]:
    """Return the versions of dadmm, Python, and the packages that are loaded."""
    loaded = {name: sys.modules[name] for name in PACKAGES if name in sys.modules}
    packages = {name: str(module.__version__) for name, module in loaded.items()}
    return {"dadmm": __version__, "python": sys.version.split()[0]} | packages


def names_of(result: Result, features: Names, fit: Fit) -> Named:
    """Return names of theta's entries, and the coefficients of a linear problem.

    An entry without the name of a column is called after its part, as in W[2, 0].
    """
    certificate, model = result.certificate, fit.linear
    if model is not None:
        bounds = {} if certificate is None else models.bounds(model, result)
        return Named(models.entry_names(model), models.coefficients(model), bounds)
    shapes, names = result.layout.shapes, list[str]()
    linear = features is not None and shapes.get("coef") == (len(features),)
    for part, shape in result.layout.shapes.items():
        if part == "coef" and features is not None and linear:
            names += features
        else:
            places = [list(place) for place in np.ndindex(shape)]
            names += [f"{part}{place}" if place else part for place in places]
    values = dict(zip(names, result.solution.tolist(), strict=True))
    wanted = {*(features or ()), *(["intercept"] * (shapes.get("intercept") == ()))}
    named = {name: values[name] for name in names if linear and name in wanted}
    bounds = {}
    if certificate is not None:
        limits = map(known, certificate.coefficients.tolist())
        bounds = dict(zip(names, limits, strict=True))
    return Named(names, named, bounds)


def gather_motion(
    world: World, problems: dict[int, Any], result: Result
) -> Matrix | None:
    """Return the motion of all cameras on rank 0, or None if the problem is not sfm."""
    cameras = {i: p for i, p in problems.items() if isinstance(p, StructureFromMotion)}
    if not cameras:
        return None
    return world.gather_nodes([p.motion(result.of(i)) for i, p in cameras.items()])


def arrays(
    result: Result, features: Names, frames: Matrix | None, adrift: bool
) -> dict[str, Any]:
    """Return the arrays of result.npz, on rank 0.

    These are the parts of theta by name, the edges with their penalties and traffic,
    structure and motion of sfm, and the names of the features, if there are any.
    ``frames`` is the motion of all cameras. A structure that is ``adrift``, known up to
    a translation, is centred at the origin.
    """
    found: dict[str, Any] = result.layout.views(result.theta)._asdict()
    found |= {"edges": result.nodes[result.topology.edges], "eta": result.eta}
    if frames is not None:
        structure = result.layout.views(result.theta.mean(axis=0)).W
        if adrift:
            structure = structure - structure.mean(axis=0)
        found |= sfm.upgrade(frames, structure)._asdict()
    if features is not None:
        found["feature_names"] = np.array(features)
    if result.topology.names:
        found["node_names"] = np.array(result.topology.names)
    if result.topology.positions is not None:
        found["node_positions"] = result.topology.positions
    traffic = result.traffic._asdict().items()
    counted = ("edge_", "tree_")
    return found | {name: value for name, value in traffic if name.startswith(counted)}


def write_imputed(
    folder: Path, problems: dict[int, Any], rows: dict[int, Rows], result: Result
) -> None:
    """Write the imputed samples of each node to ``imputed-00000.npz`` and so on.

    A file has the filled ``samples``, the ``variances`` of the imputed entries, and the
    ``latent`` means. Only the owner can read it. The folder is made if it is on
    another machine.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for i, problem in problems.items():
        if isinstance(problem, IncompletePPCA):
            theta, x = result.of(i), rows[i].X
            filled, variances = problem.impute(theta, x)
            found = {"samples": filled, "variances": variances}
            found["latent"] = problem.latent(theta, x)
            write_arrays(folder / f"imputed-{i:05d}.npz", found, private=True)
