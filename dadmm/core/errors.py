"""Errors caused by invalid input, and values in their words."""

from __future__ import annotations


class DadmmError(ValueError):
    """Base of all errors that dadmm raises; each message is one sentence.

    Examples
    --------
    >>> import dadmm
    >>> dadmm.Stopping(max_iter=0)
    Traceback (most recent call last):
    dadmm.core.errors.ConfigError: max_iter must be at least 1, got 0
    """


class ConfigError(DadmmError):
    """A setting is unknown, of the wrong type or out of range.

    Examples
    --------
    >>> import dadmm
    >>> dadmm.Sending(send_every=0)
    Traceback (most recent call last):
    dadmm.core.errors.ConfigError: send_every must be at least 1, got 0
    """


class TopologyError(DadmmError):
    """A graph is not a connected graph over nodes 0..J-1, or does not fit the run.

    Examples
    --------
    >>> import dadmm
    >>> dadmm.Topology.from_edges(3, [(0, 3)])
    Traceback (most recent call last):
    dadmm.core.errors.TopologyError: edge (0, 3) leaves the nodes 0..2; number the 3
    nodes from 0 to 2
    """


class ShardError(DadmmError):
    """Samples are missing, malformed or too few for the nodes.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> dadmm.shard.split(np.eye(2), 3)
    Traceback (most recent call last):
    dadmm.core.errors.ShardError: 2 samples are too few for 3 nodes; use at most 2 nodes
    """


class ProblemError(DadmmError):
    """A local problem cannot be built, or has no finite solution during a run.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> dadmm.problems.Ridge(np.eye(2), np.ones(3), alpha=1.0)
    Traceback (most recent call last):
    dadmm.core.errors.ProblemError: Ridge needs y of shape (2,), got (3,)
    """


class OutputError(DadmmError):
    """Results cannot be written.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> problem = dadmm.problems.LeastSquares(np.eye(2), np.ones(2))
    >>> result = dadmm.solve([problem, problem], dadmm.Topology.chain(2))
    >>> dadmm.Model.of(result, "least_squares").save("/no such folder/model.json")
    Traceback (most recent call last):
    dadmm.core.errors.OutputError: cannot write to /no such folder: No such file or
    directory; choose another --out
    """


class CheckpointError(DadmmError):
    """A checkpoint is missing or damaged, or belongs to another run.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> problem = dadmm.problems.LeastSquares(np.eye(2), np.ones(2))
    >>> resume = dadmm.Checkpoints("no such folder", resume=True)
    >>> dadmm.solve([problem] * 2, dadmm.Topology.chain(2), checkpoints=resume)
    Traceback (most recent call last):
    dadmm.core.errors.CheckpointError: there is no complete checkpoint in no such
    folder; start a new run
    """


def printable(text: str, most: int | None = None) -> str:
    """Return a text with control characters escaped, cut to ``most`` characters."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def shown(value: object, most: int = 60) -> str:
    """Return the repr of a value, cut to ``most`` characters, for an error."""
    try:
        text = " ".join(repr(value).split("\n"))  # of arrays
    except ValueError:  # Python does not print integers of very many digits
        return "a number of very many digits"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
