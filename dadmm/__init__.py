"""Consensus ADMM with no centre: in its iterations a node talks to neighbours only.

Examples
--------
>>> import dadmm
>>> samples, _ = dadmm.datasets.synthetic()
>>> problems = [
...     dadmm.problems.PPCA(rows, n_components=5)
...     for rows in dadmm.shard.split(samples, 20)
... ]
>>> dadmm.solve(problems, dadmm.Topology.ring(20)).status
'stationary'

`Callback` is the type of the functions that `solve` calls after each iteration:

>>> def stop_early(t: int, run: dadmm.Run) -> str | None:
...     return "stop" if t == 3 else None
>>> callback: dadmm.Callback = stop_early
>>> graph = dadmm.Topology.complete(20)
>>> dadmm.solve(problems, graph, callbacks=[callback]).reason
'stop'

`__version__` is a text:

>>> len(dadmm.__version__.split("."))
3
"""

# ruff: noqa: E402 (`dadmm run` begins before numpy is imported)

from typing import TYPE_CHECKING, Any

from dadmm.core.ranks import begin

begin()

from dadmm import notebook as _  # noqa: F401 (it gives results their methods)
from dadmm import penalty, problems
from dadmm.admm.loop import Callback, Run
from dadmm.comm.sending import Sending
from dadmm.core.errors import (
    CheckpointError,
    ConfigError,
    DadmmError,
    OutputError,
    ProblemError,
    ShardError,
    TopologyError,
)
from dadmm.core.layout import Layout
from dadmm.core.version import __version__
from dadmm.data import datasets, shard
from dadmm.data.encoding import Encoding
from dadmm.data.files import read_frame as read_table
from dadmm.data.frame import Frame
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.models.model import Model, load_model
from dadmm.problems import metrics
from dadmm.solver.checkpoint import Checkpoints
from dadmm.solver.result import Result
from dadmm.solver.solve import Ranks, Record, Stopping, solve
from dadmm.tables import encode

if TYPE_CHECKING:
    from dadmm import baselines, testing

__all__ = [
    "Callback", "CheckpointError", "Checkpoints", "ConfigError", "DadmmError",
    "Encoding", "Frame", "Layout", "Model", "OutputError", "ProblemError", "Ranks",
    "Record", "Result", "Run", "Schedule", "Sending", "ShardError", "Stopping",
    "Topology", "TopologyError", "__version__", "baselines", "datasets", "encode",
    "load_model", "metrics", "penalty", "problems", "read_table", "shard", "solve",
    "testing",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what the main job does not need when it is first used."""
    if name in ("baselines", "testing"):
        from importlib import import_module

        return import_module(f"dadmm.{name}")
    raise AttributeError(f"module 'dadmm' has no attribute {name!r}")
