"""Tables of several nodes as X and y: `encode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dadmm.comm.world import World
from dadmm.core.errors import ConfigError
from dadmm.data.agreement import Choice, agree
from dadmm.data.encoding import Encoding, Rows
from dadmm.data.frame import Frame
from dadmm.graphs.topology import Topology


def encode(
    tables: Any,
    topology: Topology,
    target: str | None = None,
    *,
    features: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    weight: str | None = None,
    classify: bool = False,
    categories: Sequence[str] = (),
    max_categories: int = 50,
    on_missing: str = "error",
    unknown: str = "error",
    standardise: bool = False,
    fit_intercept: bool = True,
    comm: Any = None,
) -> tuple[Encoding, list[Rows]]:
    """Agree on the columns of the nodes' tables, and return them as numbers.

    Nodes send names, categories, and with ``standardise`` or ``on_missing="mean"`` also
    means and sums of squares along a tree of the graph. No row is sent.

    Parameters
    ----------
    tables : sequence of tables, or a table
        One of each node, as `read_table` returns them; also dicts of columns, data
        frames of pandas, tables of pyarrow, and arrays. With ``comm``, the table of
        this rank.
    topology : Topology or networkx graph
    target, weight : str, optional
        Names of the columns of y and of sample weights. By default there are none.
    features, leave_out : sequence of str, optional
        Names of the columns of X, by default all that have no other use, and of columns
        that are not used, such as an id.
    classify : bool
        Whether y holds positions in the sorted ``encoding.classes``, or numbers.
    categories : sequence of str
        Columns of numbers that are categories; columns of text always are.
    max_categories : int
        Most categories of a column, and most classes.
    on_missing, unknown : {"error", "drop", "mean", "keep"}, {"error", "ignore"}
        What is done to rows with missing entries, and what ``encoding.encode`` does to
        categories that no table has here.
    standardise : bool
        Whether columns of X are divided by their standard deviations over all nodes,
        after their means are subtracted if there is an intercept.
    fit_intercept : bool
        Whether the model has an intercept. The first category of a column has no column
        in X then.
    comm : MPI.Comm, optional
        With one rank per node. By default all nodes are in this process.

    Returns
    -------
    encoding : Encoding
        ``encoding.encode(dadmm.Frame.of(table))`` encodes new rows.
    parts : list of Rows
        X, y and weight of each table.

    Examples
    --------
    >>> import dadmm
    >>> sites = [
    ...     {"age": [34, 71, 52], "ward": ["A", "B", "B"], "cost": [1.0, 3.5, 2.0]},
    ...     {"age": [66, 45, 58], "ward": ["A", "C", "C"], "cost": [2.5, 2.0, 3.0]},
    ... ]
    >>> encoding, parts = dadmm.encode(sites, dadmm.Topology.chain(2), "cost")
    >>> encoding.feature_names
    ('age', 'ward=B', 'ward=C')
    >>> parts[1].X
    array([[66.,  0.,  0.],
           [45.,  0.,  1.],
           [58.,  0.,  1.]])
    """
    topology = Topology.from_graph(topology)
    choice = Choice(
        features, target, weight, leave_out=leave_out,
        supervised=target is not None, n_classes=3 if classify else 0,
        categories=categories, max_categories=max_categories, on_missing=on_missing,
        unknown=unknown, standardise=standardise, intercept=fit_intercept,
    )  # fmt: skip
    world, given = World(comm), tables if comm is None else [tables]
    frames = {i: [Frame.of(table)] for i, table in enumerate(given, world.rank)}
    if (count := len(frames) * world.size) != len(topology):
        raise ConfigError(
            f"there are {count} tables for {len(topology)} nodes; give one for each"
        )
    with world.tree(topology) as tree:
        encoding = agree(tree.reduce, frames, choice)
    return encoding, [encoding.encode(own, fit=True) for (own,) in frames.values()]
