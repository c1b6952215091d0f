"""Errors caused by invalid input."""


class DadmmError(ValueError):
    """Base of all errors that dadmm raises; each message is one sentence."""


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
