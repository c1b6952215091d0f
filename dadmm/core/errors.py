"""Errors caused by invalid input, and values in their words."""

from __future__ import annotations

from collections.abc import Iterable


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
    """A setting is unknown, of the wrong type or out of range."""


class TopologyError(DadmmError):
    """A graph is not a connected graph over nodes 0..J-1, or does not fit the run."""


class ShardError(DadmmError):
    """Samples are missing, malformed or too few for the nodes."""


class ProblemError(DadmmError):
    """A local problem cannot be built, or has no finite solution during a run."""


class OutputError(DadmmError):
    """Results cannot be written."""


class CheckpointError(DadmmError):
    """A checkpoint is missing or damaged, or belongs to another run."""


def printable(text: str, most: int | None = None) -> str:
    """Return a text with control characters escaped, cut to ``most`` characters."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def closest(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return the known word that was probably meant, as a hint; else another hint."""
    from difflib import get_close_matches  # only where something is wrong

    close = get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise


def listed(words: Iterable[str], most: int = 5) -> str:
    """Return the first words, separated by commas, and how many more there are."""
    first = [*words]
    more = f" and {len(first) - most} more" if len(first) > most else ""
    return ", ".join(first[:most]) + more


def shown(value: object) -> str:
    """Return the repr of a value, cut to 60 characters, for an error."""
    try:
        text = " ".join(repr(value).split("\n"))  # of arrays
    except ValueError:  # Python does not print integers of very many digits
        return "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:60]}... ({len(text)} characters)"
