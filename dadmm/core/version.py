"""The version of this package, for whatever must not import all of it."""

__version__ = "1.0.0"
