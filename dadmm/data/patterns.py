"""Samples with missing entries, grouped by which entries are observed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Matrix, Vector

Integers = NDArray[np.intp]
MAX_HEIGHT = 64  # rows of a block; higher blocks save no time
BLOCK_MULTIPLE = 8  # the number of blocks is rounded up to it: more problems stack
BLOCK_COST = 10  # time of a block in rows: it inverts a small matrix


class Patterns(NamedTuple):
    """The patterns of missing entries (NaN) that some samples have."""

    mask: Matrix  # (P, D) 1 where a pattern observes a column, else 0
    which: Integers  # (n,) pattern of each sample
    order: Integers  # (n,) the samples sorted by pattern
    counts: Integers  # (P,) samples of each pattern


class Compressed(NamedTuple):
    """Few rows with the same moments as the samples, in B blocks of one pattern each.

    The first row of a pattern's first block is the mean of its samples times the root
    of their number. ``R' R`` of its other rows R is the scatter of the samples.
    """

    rows: Matrix  # (R, D) zero where nothing is observed
    entries: Matrix  # (R, D) 1 where the row's pattern observes the column, else 0
    mask: Matrix  # (B, D) the same for each block
    counts: Matrix  # (B, 1) samples of the pattern in its first block, 0 in others
    roots: Matrix  # (B, 1) square roots of the counts

    @property
    def height(self) -> int:
        return int(self.rows.shape[-2] // self.mask.shape[-2])


class Blocks(NamedTuple):
    """The division of rows, sorted by pattern, into blocks of one height."""

    height: int
    owner: Integers  # (B,) pattern of each block
    place: Integers  # (rows,) position of each row among the B * height rows
    first: Integers  # (P,) first block of each pattern


def patterns(samples: Matrix) -> Patterns:
    observed = ~np.isnan(samples)
    words = np.packbits(observed, axis=1)
    keys = words.view(f"V{words.shape[1]}")[:, 0]  # as one item each, which sorts fast
    _, first, which, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(which, kind="stable")
    return Patterns(observed[first].astype(np.float64), which, order, counts)


def blocks(lengths: Integers) -> Blocks:
    """Return the blocks of rows, given the number of rows of each pattern (P,)."""

    def cost(height: int) -> int:  # higher blocks are fewer, but have more empty rows
        return int(np.sum(-(-lengths // height))) * (height + BLOCK_COST)

    height = min(np.unique(np.clip(lengths, 1, MAX_HEIGHT)).tolist(), key=cost)
    number = -(-lengths // height)
    owner = np.repeat(np.arange(len(lengths)), number)
    first = np.cumsum(number) - number
    start = height * first - (np.cumsum(lengths) - lengths)
    place = np.repeat(start, lengths) + np.arange(lengths.sum())
    return Blocks(height, owner, place, first)


def compress(centred: Matrix, found: Patterns) -> Compressed:
    """Return few rows with the same moments as the samples (n, D), minus some point.

    Samples are reflected within each pattern. Let it have ``r^2`` samples with mean m.
    The Householder reflection that maps the vector of entries ``1 / r`` to the first
    axis makes the first row ``r m``, and the others ``x_j - m + (x_1 - m) / (r - 1)``.
    """
    rows = np.where(np.isnan(centred), 0.0, centred)[found.order]
    heads, which = np.cumsum(found.counts) - found.counts, found.which[found.order]
    root = np.sqrt(found.counts)[:, None]
    means = np.add.reduceat(rows, heads, axis=0) / found.counts[:, None]
    rows -= means[which]
    rows += (rows[heads] / np.where(root > 1.0, root - 1.0, 1.0))[which]
    rows[heads] = root * means
    rows, lengths = _triangular(rows, found)
    cut, D = blocks(lengths), centred.shape[1]
    B = -len(cut.owner) // BLOCK_MULTIPLE * -BLOCK_MULTIPLE  # rounded up
    mask = found.mask[np.resize(cut.owner, B)]
    placed, counts = np.zeros((B * cut.height, D)), np.zeros((B, 1))
    placed[cut.place], counts[cut.first, 0] = rows, found.counts
    entries = np.repeat(mask, cut.height, axis=0)
    return Compressed(placed, entries, mask, counts, np.sqrt(counts))


def _triangular(rows: Matrix, found: Patterns) -> tuple[Matrix, Integers]:
    """Return rows with the same moments, and their number: k + 1 for k columns."""
    needed = 1 + found.mask.sum(axis=1)
    if np.all(found.counts <= needed):
        return rows, found.counts
    kept = []
    runs = np.split(rows, np.cumsum(found.counts)[:-1])
    for run, mask, most in zip(runs, found.mask > 0.0, needed, strict=True):
        if len(run) > most:
            factor = np.linalg.qr(run[1:, mask], mode="r")
            run = run[: 1 + len(factor)].copy()
            run[1:, mask] = factor
        kept.append(run)
    return np.vstack(kept), np.array([len(run) for run in kept])


def precisions(mask: Matrix, H: Matrix) -> Matrix:
    """Return ``H' H`` (..., P, K, K) over the columns that each pattern observes."""
    *lead, D, K = H.shape
    products = (H[..., :, None] * H[..., None, :]).reshape(*lead, D, K * K)
    return np.asarray(mask @ products).reshape(*lead, -1, K, K)


def posterior(
    samples: Matrix, H: Matrix, mu: Vector, a: float, ridge: Matrix
) -> tuple[Matrix, Matrix, Patterns]:
    """Return the posterior of the latent variables, given the observed entries.

    The samples (n, D) are ``H z + mu`` and noise of precision a, with NaN where an
    entry is missing. ``ridge`` (K, K) is the prior precision of z; for samples without
    observed entries it is the identity. The means are (n, K); the covariances are those
    of each pattern, (P, K, K).
    """
    found, K = patterns(samples), H.shape[1]
    observed = found.mask.sum(axis=1)[:, None, None]
    prior = np.where(observed > 0.0, ridge, np.eye(K))
    inner = np.linalg.inv(precisions(found.mask, H) + prior / a)
    cut = blocks(found.counts)
    padded = np.zeros((len(cut.owner) * cut.height, K))
    centred = np.where(np.isnan(samples), 0.0, samples - mu)
    padded[cut.place] = (centred @ H)[found.order]
    padded = (padded.reshape(-1, cut.height, K) @ inner[cut.owner]).reshape(-1, K)
    means = np.empty((len(samples), K))
    means[found.order] = padded[cut.place]
    return means, np.asarray(inner / a, dtype=np.float64), found


def fill(samples: Matrix, W: Matrix, mu: Vector, a: float) -> Matrix:
    """Return samples with the expectation of each missing entry under PPCA."""
    lost = np.isnan(samples)
    if not lost.any():
        return samples
    latent = posterior(samples, W, mu, a, np.eye(W.shape[1]))[0]
    return np.where(lost, mu + latent @ W.T, samples)


def observed_means(samples: Matrix, axis: int) -> Matrix:
    """Return the means of the observed entries along an axis; of no entries, zero."""
    observed = ~np.isnan(samples)
    total = np.where(observed, samples, 0.0).sum(axis=axis, keepdims=True)
    return np.asarray(total / np.maximum(observed.sum(axis=axis, keepdims=True), 1))


def remove_entries(
    samples: Matrix, fraction: float, seed: int, together: int = 1
) -> Matrix:
    """Return samples with NaN at random; ``together`` rows lose the same entries."""
    rng = np.random.default_rng([seed, 1])
    lost = rng.random((len(samples) // together, samples.shape[1])) < fraction
    return np.where(np.repeat(lost, together, axis=0), np.nan, samples)
