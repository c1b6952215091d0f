"""Named parts of one contiguous vector."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dadmm.core.errors import ProblemError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Array = NDArray[Any]  # of any type


class Layout:
    """The named parts of a parameter vector and their positions.

    Parameters
    ----------
    shapes : dict of str to tuple of int, of each part, in order
    private : sequence of str
        The last parts, if each node has its own: they are not sent or penalised.
    scales : dict of str to float, factors of the penalty, for parts in other units

    Examples
    --------
    >>> layout = Layout.of(W=(20, 5), mu=(20,), a=())
    >>> theta = np.zeros(layout.size)
    >>> layout.views(theta).a[...] = 1.0
    >>> layout.size, theta[-1]
    (121, np.float64(1.0))
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        private: Sequence[str] = (),
        scales: Mapping[str, float] | None = None,
    ) -> None:
        self.shapes, self.private = dict(shapes), tuple(private)
        self.scales = dict(scales or {})
        names = tuple(self.shapes)
        shared = names[: len(names) - len(self.private)]
        if (*shared, *self.private) != names:
            raise ProblemError(
                f"private parts must be the last of {', '.join(names)}, in that order, "
                f"got {', '.join(self.private)}"
            )
        for name, scale in self.scales.items():
            if name not in shared or not 0 < scale < inf:
                raise ProblemError(
                    f"scales must be positive factors of {', '.join(shared)}, got "
                    f"{scale!r} for {name!r}"
                )
        sizes = {name: prod(shape) for name, shape in self.shapes.items()}
        ends: list[int] = np.cumsum([0, *sizes.values()]).tolist()
        parts = zip(ends, ends[1:], self.shapes.values(), strict=False)
        self._parts = [(slice(i, j), tuple(shape)) for i, j, shape in parts]
        self.size, self.shared_size = ends[-1], ends[len(shared)]
        pull = [np.full(n, self.scales.get(name, 1.0)) for name, n in sizes.items()]
        self.pull: Vector = np.concatenate([np.empty(0), *pull])
        self.pull[self.shared_size :] = 0.0
        self.names = [name for name in shared if sizes[name]]  # that are not empty
        self.sizes = [sizes[name] for name in self.names]
        self.starts = np.cumsum([0, *self.sizes])[:-1]  # first entry of each
        self._root = np.sqrt(self.pull[: self.shared_size])
        self._record: Any = namedtuple("Parts", self.shapes)  # type: ignore[misc]
        self._plain = not self.private and not self.scales
        factors = tuple(sorted(self.scales.items()))
        self._key = tuple(self.shapes.items()), self.private, factors

    @classmethod
    @cache
    def of(cls, **shapes: tuple[int, ...]) -> Layout:
        """Return the layout of shapes given by name; equal shapes share one object."""
        return cls(shapes)

    def shared(self, theta: Vector) -> Vector:
        """Return the shared parts (..., shared_size), times the roots of their scales.

        Then all have the same penalty.
        """
        return theta if self._plain else theta[..., : self.shared_size] * self._root

    def whole(self, shared: Vector, theta: Vector) -> Vector:
        """Return the inverse of `shared`, with the private parts of ``theta``."""
        if self._plain:
            return shared
        out = np.empty((*shared.shape[:-1], self.size))
        np.divide(shared, self._root, out=out[..., : self.shared_size])
        out[..., self.shared_size :] = theta[..., self.shared_size :]
        return out

    def views(self, theta: NDArray[np.float64]) -> Any:
        """Return the parts of ``theta`` (..., size), a namedtuple of views."""
        if theta.ndim == 1:  # plain slices are twice as fast
            return self._record(*[theta[w].reshape(s) for w, s in self._parts])
        lead = theta.shape[:-1]
        return self._record(*[theta[..., w].reshape(lead + s) for w, s in self._parts])

    def pack(self, **parts: ArrayLike) -> Vector:
        """Return a new vector (size,) of the given parts."""
        theta = np.empty(self.size)
        views = self.views(theta)
        for name in self.shapes:
            getattr(views, name)[...] = parts[name]
        return theta

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[object, ...]:
        return Layout, (self.shapes, self.private, self.scales)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={shape}" for name, shape in self.shapes.items())
        if self._plain:
            return f"Layout.of({inside})"
        return f"Layout(dict({inside}), private={self.private}, scales={self.scales})"
