"""Named parts of one contiguous vector."""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Layout:
    """Where each named part of a parameter vector lies.

    Parameters
    ----------
    shapes : dict of str to tuple of int
        Shape of each part, in the order in which the parts are laid out.

    Examples
    --------
    >>> layout = Layout.of(W=(20, 5), mu=(20,), a=())
    >>> layout.size
    121
    >>> theta = np.zeros(layout.size)
    >>> layout.views(theta).a[...] = 1.0
    >>> theta[-1]
    np.float64(1.0)
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self._parts: list[tuple[slice, tuple[int, ...]]] = []
        stop = 0
        for shape in self.shapes.values():
            start, stop = stop, stop + prod(shape)
            self._parts.append((slice(start, stop), tuple(shape)))
        self.size = stop

    @classmethod
    def of(cls, **shapes: tuple[int, ...]) -> Layout:
        """Return a layout from shapes given by name."""
        return cls(shapes)

    @cached_property
    def _record(self) -> Any:
        return namedtuple("Parts", self.shapes)

    def views(self, theta: NDArray[np.float64]) -> Any:
        """Return the parts of ``theta`` by name, as views.

        Parameters
        ----------
        theta : ndarray of shape (..., size)

        Returns
        -------
        parts : namedtuple of ndarray
            Each part has shape ``theta.shape[:-1] + shape`` and shares memory
            with ``theta``.
        """
        if theta.ndim == 1:  # the hot path: plain slices are twice as fast
            return self._record(*[theta[w].reshape(s) for w, s in self._parts])
        lead = theta.shape[:-1]
        return self._record(*[theta[..., w].reshape(lead + s) for w, s in self._parts])

    def pack(self, **parts: Any) -> Vector:
        """Return a new vector that holds the given parts."""
        theta = np.empty(self.size)
        views = self.views(theta)
        for name in self.shapes:
            getattr(views, name)[...] = parts[name]
        return theta

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and list(self.shapes.items()) == list(
            other.shapes.items()
        )

    def __hash__(self) -> int:
        return hash(tuple(self.shapes.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={shape}" for name, shape in self.shapes.items())
        return f"Layout.of({inside})"
