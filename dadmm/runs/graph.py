"""The graph of a run, from its settings."""

from __future__ import annotations

from dadmm.core.errors import ConfigError
from dadmm.graphs import topology
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.runs.config import RunConfig


def is_named(config: RunConfig) -> bool:
    """Return whether all graphs are known by name, and none is a file."""
    no_file = topology.GRAPHS.keys() >= set(config.topology.split(","))
    return no_file and not config.schedule.endswith(".csv")


def build_graph(
    config: RunConfig, n_nodes: int | None
) -> tuple[Topology, Schedule | None]:
    """Return the graph, and the schedule of its edges unless all are always used."""
    names, seed = config.topology.split(","), config.topology_seed
    if n_nodes is None and not topology.GRAPHS.keys().isdisjoint(names):
        n_nodes = config.traits.nodes
    if len(names) == 1:
        graph = topology.build(names[0], n_nodes, seed)
        return graph, Schedule.named(graph, config.schedule, seed)
    if config.schedule != "static":
        raise ConfigError(
            f"schedule {config.schedule} cannot be used with several graphs, "
            f"{config.topology}, which take turns; leave out --schedule"
        )
    schedule = Schedule.build(names, n_nodes, seed)
    return schedule.union, schedule
