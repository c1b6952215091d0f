"""The base of all estimators: the network, and the check that ranks fit alike."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from dadmm.comm import identity
from dadmm.comm.sending import Sending
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.errors import ProblemError, TopologyError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Array, Vector
from dadmm.core.schema import integer
from dadmm.data import shard
from dadmm.graphs import topology
from dadmm.graphs.placement import assign
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.solver.ending import advise
from dadmm.solver.result import Result
from dadmm.solver.solve import as_option, grouped, solve

T = TypeVar("T")
NODES = 4
EXACT = 1e-9  # of the means and spreads that a scaler has made
NOT_PICKLED = "not pickled"  # in place of the communicator
Arrays = tuple[Any, ...]  # X, which may be sparse, and y and weights


class FitData(NamedTuple):
    """The ranks and the graph of a fit, and the rows of each node of this process."""

    world: World
    graph: Topology
    shards: list[Arrays]

    def problems(self, build: Callable[..., Problem]) -> list[Problem]:
        return on_all_ranks(self.world, lambda: [build(*own) for own in self.shards])

    def total(self, table: Sequence[Sequence[float]]) -> Vector:
        """Return the sum of a row per node over all nodes; ``table`` has those here."""
        rows = [np.array(row, dtype=np.float64) for row in table]
        return np.asarray(self.world.reduce(self.graph, rows))


@dataclass(eq=False, repr=False, kw_only=True)
class Consensus(BaseEstimator):
    """The base of estimators that the nodes of a network fit together.

    Parameters
    ----------
    n_nodes : int, optional
        The rows are divided among the nodes, evenly and in order. The default is 4, the
        number of nodes of a given graph, or fewer if there are too few rows; with
        ``comm`` one node per rank. A rank divides its rows among its nodes.
    topology : str, Topology or networkx graph
        The graph: a name in `dadmm.graphs.topology.GRAPHS`, a file, or an object.
    scheme, sending, max_iter
        See `dadmm.solve`.
    tolerance : float
        Relative accuracy at which the nodes stop; the absolute one is a thousandth.
    options : dict, optional
        Further settings by name: fields of the scheme, of `dadmm.Stopping`,
        `dadmm.Sending` or `dadmm.Record`, or arguments of `dadmm.solve`.
    comm : MPI.Comm, optional
        Every rank passes its own rows to `fit`, and has the same attributes afterwards.
        Clones share the communicator; a pickled estimator does not contain it.

    Attributes
    ----------
    result_ : Result
        The result of `dadmm.solve`.
    n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    n_nodes: int | None = None
    topology: str | Topology = "ring"
    scheme: str | Scheme = "snap"
    tolerance: float = 1e-4
    max_iter: int = 1000
    sending: str | Sending = "float64"
    options: dict[str, Any] | None = None
    comm: Any = None

    def __getstate__(self) -> dict[str, Any]:
        comm = None if self.comm is None else NOT_PICKLED
        return {**super().__getstate__(), "comm": comm}

    def __sklearn_clone__(self) -> Consensus:
        cloned: Consensus = super(Consensus, copy.copy(self)).__sklearn_clone__()
        cloned.comm = self.comm
        return cloned

    def _assemble(self, check: Callable[[], Arrays], *, least: int = 1) -> FitData:
        """Return ranks, graph and rows, ``least`` or more of each node; collective."""
        if isinstance(self.comm, str):
            raise ProblemError(
                "this estimator is a copy without its communicator, as joblib makes "
                "with n_jobs; set comm before fit, to None to fit these rows alone"
            )
        world = World(self.comm)
        if world.size > 1 and _is_cross_validated():  # raise before ranks wait
            raise ProblemError(
                "a cross-validation splits the rows of one rank only; over MPI use a "
                "loop over parameters in place of it, the same on all ranks"
            )
        arrays = on_all_ranks(world, check)
        n = arrays[0].shape[0]
        graph = on_all_ranks(world, lambda: self._graph(world, n // least))
        facts = identity.settings(self.get_params(False)) | {
            "estimator": type(self).__name__,
            "the format of X": "sparse" if issparse(arrays[0]) else "dense",
            "the number of features": str(self.n_features_in_),
            "the names of features": repr(list(getattr(self, "feature_names_in_", ()))),
            "graph": identity.of_graph(graph),
        }
        del facts["comm"], facts["topology"]  # ranks have their own objects
        scaled = _is_standardised(arrays[0])
        everyone = Checks(world).gather(lambda: facts, scaled=scaled)
        if world.size > 1 and all(each["scaled"] for each in everyone):
            raise ProblemError(
                "every rank has standardised all columns of X by itself, so a column "
                "has another unit on each rank; leave the scaler out, or scale by "
                "numbers that all ranks share"
            )
        if world.comm is not None:
            world.hosts = assign(graph, [""] * world.size, "blocks")
        hosted = range(len(world.hosted(len(graph))))

        def divide() -> list[Arrays]:
            cuts = [slice(*shard.bounds(n, len(hosted), i)) for i in hosted]
            return [tuple(array[own] for array in arrays) for own in cuts]

        return FitData(world, graph, on_all_ranks(world, divide))

    def _graph(self, world: World, most: int) -> Topology:
        """Return the graph; in one process a named one has at most ``most`` nodes."""
        wanted, graph = self.n_nodes, self.topology
        if wanted is not None:
            integer(1).check("n_nodes", wanted)
        elif world.comm is not None:
            wanted = world.size
        if not isinstance(graph, str):
            graph = Topology.from_graph(graph)
            if wanted not in (None, len(graph)):
                raise TopologyError(f"the graph has {len(graph)} nodes, not {wanted}")
            return graph
        if world.comm is None and graph in topology.GRAPHS:
            wanted = max(1, min(wanted or NODES, most))
        return topology.build(graph, wanted)

    def _solve(self, data: FitData, problems: Sequence[Problem], **more: Any) -> Result:
        options = {"sending": self.sending, **(self.options or {})}
        more |= vars(as_option(Sending, options.pop("sending")))
        more |= {"scheme": self.scheme, "max_iter": self.max_iter,
                 "tolerance": self.tolerance,
                 "absolute_tolerance": 1e-3 * self.tolerance}  # fmt: skip
        world, graph = data.world, data.graph
        given = grouped(more | options | {"comm": world.comm})
        own = dict(zip(world.hosted(len(graph)), problems, strict=True))
        result = solve(problems if world.comm is None else own, graph, **given)
        if not result.converged and world.rank == 0:
            rows = data.shards[0][0]
            warnings.warn(
                f"{type(self).__name__} ended by {result.reason} after "
                f"{result.iterations} iterations, not converged"
                f"{f': {result.why}' if result.reason == 'no_minimum' else ''}; "
                f"{advise(result, None if issparse(rows) else rows)}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return result


def _is_cross_validated() -> bool:
    """Return whether scikit-learn's model selection calls this fit."""
    callers = [one.frame.f_globals.get("__name__") for one in inspect.stack(context=0)]
    return any(str(name).startswith("sklearn.model_selection") for name in callers)


def _is_standardised(X: Array) -> bool:
    """Return whether all columns of X that vary have mean 0 and variance 1."""
    if issparse(X) or len(X) < 2 or np.isnan(X).any():
        return False
    mean, spread = X.mean(axis=0), X.std(axis=0)
    varies = spread > EXACT
    near = np.abs([mean, np.where(varies, spread - 1.0, 0.0)]) <= EXACT
    return bool(varies.any() and near.all())


def on_all_ranks(world: World, step: Callable[[], T]) -> T:
    """Return ``step()``; if it raises on one rank, raise on all.

    In one process scikit-learn's own errors are raised, including TypeErrors.
    """
    if world.comm is None:
        return step()

    def attempt() -> T:
        try:
            return step()
        except (TypeError, ValueError) as error:
            raise ProblemError(str(error)) from error

    return collectively(world, attempt)
