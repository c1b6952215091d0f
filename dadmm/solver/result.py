"""The result of `dadmm.solve`, gathered from all nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.state import PHASES
from dadmm.comm.traffic import Traffic
from dadmm.comm.world import World
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, shown
from dadmm.core.layout import Array, Layout, Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.solver.certificate import Certificate
from dadmm.solver.checkpoint import LocalRun
from dadmm.solver.ending import Ending
from dadmm.solver.merged import MergedStart
from dadmm.solver.rows import History, Recorder
from dadmm.solver.subspace import SubspaceBound

ACTIONS: dict[str, Callable[..., Any]] = {}  # of a result; `dadmm.notebook` has them


class Seconds(NamedTuple):
    """Seconds that each node spent in each phase, each (n_nodes,)."""

    solve: Vector
    exchange: Vector
    update: Vector  #: multipliers, stopping rule and penalties
    observe: Vector  #: records and callbacks


class EdgePenalties(NamedTuple):
    """Penalties and budgets of each directed edge, aligned with ``topology.edges``.

    With ``coupling="symmetric"`` an edge uses the mean of its two directions. Budgets
    are zero with schemes that have none.
    """

    eta0: Vector  #: (E,) penalty of the first iteration
    guessed: Vector  #: (E,) 1 if no end found a curvature, so that eta0 is 10
    eta: Vector  #: (E,) penalty that the scheme has set last
    spent: Vector  #: (E,) what was spent; in `snap` bits, in the paper's sums of |tau|
    budget: Vector  #: (E,)
    raised: Vector  #: (E,) how often the budget was raised
    used_up: Vector  #: (E,) 1 if the edge asks for more than is left and does not move


class Residuals(NamedTuple):
    """Lengths of the last iteration, in the coordinates of the run, each (n_nodes,)."""

    disagreement: Vector  #: root mean square distance from the neighbours, as received
    residual: Vector  #: length of the gradient of the node's Lagrangian
    lag: Vector  #: root mean square distance from the neighbours' copies of it


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run; the same on every rank.

    With ``gather="root"`` or ``"none"``, ranks without the results of all nodes have
    arrays with a row for each of their nodes, or for each edge of these. Their sums,
    such as ``traffic.messages``, are over their nodes, and ``traffic.edge_lost`` counts
    the payloads that were dropped on arrival here.

    Parameters
    ----------
    topology : Topology
    layout : Layout
        Names and shapes of the parts of theta.
    theta, objectives : ndarray of shape (n_nodes, size) and (n_nodes,)
        Parameters of each node, and f_i there in the last iteration.
    reason, iterations : str, int
        Why the run ended, one of `dadmm.admm.stopping.REASONS`, and when.
    status : {"certified", "stationary", "stopped", "max_iter", "not converged"}
        What is known of the result, see `docs/accuracy.md`.
    why : str
        Why no more can be said; "" if the result is certified or stationary.
    coordinates : {"metric", "units", "raw"}
        In which theta was found.
    solution, objective : ndarray of shape (size,), float
        The mean of the nodes' parameters; private parts are NaN. The sum of all f_i
        there, after an E-step there.
    certificate : Certificate or None
        A bound on the error of ``solution``.
    residuals : Residuals
    ending : Ending
        The criterion that was met last, or was not met.
    traffic : Traffic
    seconds, seconds_of_all_sessions : Seconds
        Since the run began or was resumed, and since it began.
    history : History
        Rows of each iteration, see `dadmm.Record`; empty if nothing was recorded.
    penalties : EdgePenalties
    nodes, lost : ndarray of int of shape (n_nodes,), tuple of int
        Numbers at the start of the nodes that have not failed, and of failed nodes.
    comm : MPI.Comm, optional
        Communicator of the ranks that finished.
    start : MergedStart or None
        With ``init="merged"``, where the run started, and how far from the result.
    subspace_bound : SubspaceBound or None
        For PPCA in units without missing entries, unless ``bound_angle`` is False.
    duals : dict of int to ndarray of shape (shared_size,)
        Twice the sums of the multipliers, by node of this process; for ``warm_start``.
    curvature_seconds : float
        How long this process measured curvatures for the first penalties.
    settings, spent : dict
        The class of the problem, and what `solve` was given, by name. Seconds of this
        call in ``total``, and of its ``set_up`` before iteration 1.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(6))
    >>> result.status, result.converged, result.theta.shape
    ('certified', True, (6, 4))
    >>> result.parts(0).coef.round(2)  # of node 0
    array([ 0.13, -0.12,  0.58])
    """

    topology: Topology
    layout: Layout
    theta: Matrix
    objectives: Vector
    reason: str
    iterations: int
    status: str
    why: str
    coordinates: str
    solution: Vector
    objective: float
    certificate: Certificate | None
    residuals: Residuals
    ending: Ending
    traffic: Traffic
    seconds: Seconds
    seconds_of_all_sessions: Seconds
    history: History
    penalties: EdgePenalties
    nodes: np.ndarray
    lost: tuple[int, ...] = ()
    comm: Any = None
    start: MergedStart | None = None
    subspace_bound: SubspaceBound | None = None
    duals: Mapping[int, Vector] = field(default_factory=dict)
    curvature_seconds: float = 0.0
    settings: Table = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"<Result of {self.topology.n_nodes} nodes: {self.status} after "
            f"{self.iterations} iterations, objective {self.objective:.6g}>"
        )

    def _repr_html_(self) -> str:
        return str(ACTIONS["html"](self))

    def to_frame(self, what: str = "history") -> Any:
        """Return numbers of the run as a data frame of pandas.

        Parameters
        ----------
        what : {"history", "edges", "traffic"}
            Rows by iteration and node, by iteration and directed edge, or by edge.
        """
        return ACTIONS["to_frame"](self, what)

    def plot(self, kind: str = "convergence") -> Any:
        """Return a figure of matplotlib.

        Parameters
        ----------
        kind : {"convergence", "cost", "traffic", "eta", "network", "structure"}
            As ``dadmm plot --kind``. "eta" and "network" need
            ``record=dadmm.Record(edges=True)``.
        """
        return ACTIONS["plot"](self, kind)

    def save(
        self, folder: str | Path, encoding: object = None, *, overwrite: bool = False
    ) -> Path:
        """Write a folder as ``dadmm run`` does, over MPI on rank 0; return its path.

        Parameters
        ----------
        folder : str or Path
        encoding : Encoding, optional
            Of `dadmm.encode`: the columns of the table, for ``dadmm predict``.
        overwrite : bool
            Whether to replace a run that is in the folder.
        """
        return Path(ACTIONS["save"](self, folder, encoding, overwrite))

    def replay(self, network: str) -> Any:
        """Return the run on another network, with its ``seconds`` and ``breakdown``.

        Parameters
        ----------
        network : str
            "host", "lan", "wan", "wireless", or a TOML file, as for ``dadmm replay``.
        """
        return ACTIONS["replay"](self, network)

    @property
    def converged(self) -> bool:
        """Whether the result is certified, or the stopping rule is met."""
        return self.status not in ("max_iter", "not converged")

    @property
    def eta(self) -> Vector:
        """Penalties at the end, ``penalties.eta``, (E,)."""
        return self.penalties.eta

    def of(self, node: int) -> Vector:
        """Return the parameters (size,) of a node, by its number at the start."""
        rows = np.flatnonzero(self.nodes == node)
        if not len(rows):
            raise ConfigError(
                f"this result has no parameters of node {shown(node)}; they may be on "
                "another rank (see gather), or the node has failed"
            )
        return np.asarray(self.theta[rows[0]])

    def parts(self, i: int) -> Any:
        """Return the named parts of row i of ``theta``."""
        return self.layout.views(self.theta[i])


def collect(
    local: LocalRun,
    recorder: Recorder,
    before: Mapping[int, Vector],
    gather: str,
    **known: Any,
) -> Result:
    """Return the result of all nodes that finished, given its other fields.

    ``before`` has the seconds (4,) of nodes in earlier sessions of the run.
    """
    run, work, phases = local.run, local.run.work, len(PHASES)
    layout, state, sending = run.kind.layout, run.state, run.state.sending
    topology, own_nodes = run.topology, run.names.tolist()
    earlier = np.array([before.get(i, np.zeros(phases)) for i in own_nodes])
    own = np.column_stack(
        [run.points, work.objective, run.seconds, run.seconds - earlier,
         work.disagreement, work.residual, work.lag]
    )  # fmt: skip
    none = np.zeros(len(run.arcs), np.int64)
    penalties = [state.penalty.get(name, none) for name in EdgePenalties._fields]
    gone = [sending.get(name, none) for name in ("silent", "lost")]
    counts = [*run.exchange.sent.T, *gone, *run.tree.sent[run.arcs].T]
    tables = [
        run.by_node(own), run.by_edge(np.array(penalties, float).T),
        run.by_edge(np.array(counts).T), *recorder.tables(), run.exchange.wire,
    ]  # fmt: skip
    whole, names = len(run.nodes) == topology.n_nodes, run.names_of_all
    if not whole and gather != "none":
        whole, tables = _gathered(run, tables, gather == "all")
    theta, rest = np.split(tables[0], [layout.size], axis=1)
    objectives, *measured = rest.T.copy()
    messages, data, silent, lost, sums, sum_bytes = tables[2].T.copy()
    if whole:  # receivers count lost payloads, so the sender's row is the reverse edge
        lost = lost[topology.reverse]
    calls, shared = run.exchange.collectives.tolist()
    traffic = Traffic(
        messages, data, silent, lost, calls, shared, sums, sum_bytes,
        tables[-1], run.is_broadcast,
    )  # fmt: skip
    duals = run.kind.gradients_of(2.0 * work.multiplier, state.theta)
    return Result(
        topology=topology,
        layout=layout,
        theta=theta.copy(),
        objectives=objectives,
        reason=local.reason,
        iterations=local.iterations,
        residuals=Residuals(*measured[2 * phases :]),
        traffic=traffic,
        seconds=Seconds(*measured[phases : 2 * phases]),
        seconds_of_all_sessions=Seconds(*measured[:phases]),
        history=recorder.history(tables[3:5]),
        penalties=EdgePenalties(*tables[1].T.copy()),
        nodes=names if whole else names[run.by_node(run.nodes)],
        lost=local.lost,
        duals=dict(zip(own_nodes, duals, strict=True)),
        curvature_seconds=run.penalties.curvature_seconds,
        **known,
    )


def _gathered(
    run: Run, tables: list[Array], everywhere: bool
) -> tuple[bool, list[Array]]:
    """Return whether this rank has the tables of all ranks, and the tables.

    They have a row per node or per edge (see ``owners``), or per pair of ranks.
    """
    world, hosts = World(run.exchange.private_comm), run.exchange.hosts
    whole = [world.gather(table, everywhere) for table in tables]  # rank by rank
    if not len(whole[0]):
        return False, tables
    senders = hosts[run.topology.edges[:, 0]]
    for k, owners in enumerate((hosts, senders, senders, hosts, senders)):
        whole[k][np.argsort(owners, kind="stable")] = whole[k].copy()
    return True, whole
