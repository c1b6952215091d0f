"""Callbacks that watch a run of the paper's experiments, and say when it would stop."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dadmm
from dadmm.admm.loop import Run
from dadmm.admm.stopping import PATIENCE
from dadmm.problems import PPCA, metrics

THRESHOLDS = (10.0, 5.0, 3.0, 1.0)  # degrees


def consensus_error(theta: np.ndarray) -> float:
    """Return the largest relative distance of a row of theta from the mean of all."""
    mean = theta.mean(axis=0)
    worst = np.linalg.norm(theta - mean, axis=1).max()
    return float(worst / (np.linalg.norm(mean) or 1.0))


class Angles:
    """A callback that keeps the largest angle over the nodes to each target."""

    def __init__(self, layout: dadmm.Layout, targets: Mapping[str, np.ndarray]) -> None:
        self._layout, self._targets = layout, targets
        self.curves: dict[str, list[float]] = {name: [] for name in targets}

    def __call__(self, t: int, run: Run) -> None:
        W = self._layout.views(run.theta).W
        for name, target in self._targets.items():
            self.curves[name].append(metrics.subspace_angle(W, target).max())


class PaperRule:
    """A callback that says when the paper's rule stops, and lets the run go on.

    It is `--stopping objective --agreement global`: the relative change of the sum of
    all -log p(X_i | theta_i), equation (14), is small for `PATIENCE` iterations. Sums
    are known one iteration later, as in a run.
    """

    TOLERANCE = 1e-3

    def __init__(self) -> None:
        self._held, self.stop = 0, None
        self.totals: list[float] = []  # the sums

    def __call__(self, t: int, run: Run) -> None:
        if self._held >= PATIENCE:
            self.stop = self.stop or t
        before = self.totals[-1] if self.totals else np.inf
        total = float(run.by_node(run.local.likelihoods()).sum())
        is_small = abs(total - before) < self.TOLERANCE * max(abs(total), 1.0)
        self._held = self._held + 1 if is_small else 0
        self.totals.append(total)


class Enough:
    """A callback that ends a run when the paper's rule holds.

    A patient one waits until all nodes are within 1 degree of the centralised solution,
    which shows how far off a run still was when the rule stopped it.
    """

    def __init__(self, paper: PaperRule, angles: Angles, patient: bool) -> None:
        self._paper, self._angles, self._patient = paper, angles, patient

    def __call__(self, t: int, run: Run) -> str | None:
        there = self._angles.curves["centralised"][-1] < min(THRESHOLDS)
        ends = self._paper.stop and (there or not self._patient)
        return "stop" if ends else None


class SecondRule:
    """A callback that says when the second rule of the authors' program would stop.

    The paper does not mention this rule. The program counts the iterations, after a
    bound, in which the reprojection error rises, and stops at the tenth. This rule
    ends most of the published curves. Here it is measured and never stops a run.
    """

    PATIENCE = 10

    def __init__(self, problems: Sequence[PPCA], paper: PaperRule) -> None:
        n, self._paper = len(problems), paper
        self._bound = 2 * n if n < 10 else n
        self._previous, self._rises = np.inf, 0
        self._thetas: np.ndarray | None = None
        self.stop: int | None = None
        kinds: dict[Any, list[int]] = {}
        for i, problem in enumerate(problems):
            kinds.setdefault(problem.kind, []).append(i)
        self._groups = [
            (group, PPCA.stack([problems[i] for i in group]))
            for group in kinds.values()
        ]

    def __call__(self, t: int, run: Run) -> None:
        if self.stop or self._paper.stop:
            return
        thetas = run.theta
        if self._thetas is not None:
            error = self._error(self._thetas, thetas)
            self._rises += t > self._bound and error > self._previous
            self._previous = error
            if self._rises >= self.PATIENCE:
                self.stop = t
        self._thetas = thetas

    def _error(self, old: np.ndarray, new: np.ndarray) -> float:
        """Return the squared error of new W and mu with the E-step's old latents."""
        total = 0.0
        for group, stacked in self._groups:
            stats = stacked.expect(old[group])
            # the expected misfit, less the part that is the latents' own variance
            W, mu, _ = stacked.layout.views(new[group])
            misfit = stacked._misfit(W[:, None], mu[:, None], stats)[:, 0]
            old_W, _, a = stacked.layout.views(old[group])
            inner = np.linalg.inv(
                old_W.mT @ old_W + np.eye(W.shape[2]) / a[:, None, None]
            )
            shared = (stacked.count / a)[:, None, None] * inner
            variance = np.einsum("ndm,nmk,ndk->n", W, shared, W)
            total += float((misfit - variance).sum())
        return total
