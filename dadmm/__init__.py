"""Consensus ADMM with no centre: in its iterations a node talks to neighbours only."""

from dadmm import datasets, metrics, problems, shard, testing
from dadmm.checkpoint import Checkpoints
from dadmm.errors import (
    CheckpointError,
    ConfigError,
    DadmmError,
    OutputError,
    ProblemError,
    ShardError,
    TopologyError,
)
from dadmm.layout import Layout
from dadmm.schedule import Schedule
from dadmm.sending import Sending
from dadmm.solver import Result, solve
from dadmm.topology import Topology
from dadmm.version import __version__

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "ConfigError",
    "DadmmError",
    "Layout",
    "OutputError",
    "ProblemError",
    "Result",
    "Schedule",
    "Sending",
    "ShardError",
    "Topology",
    "TopologyError",
    "__version__",
    "datasets",
    "metrics",
    "problems",
    "shard",
    "solve",
    "testing",
]
