"""The check of a problem's contract: what passes, and what is named at a fault."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dadmm import Layout
from dadmm.core.errors import ProblemError
from dadmm.data import datasets
from dadmm.data.encoding import Rows
from dadmm.data.patterns import remove_entries
from dadmm.problems import (
    PPCA,
    PROBLEMS,
    LeastSquares,
    LogisticRegression,
    Smooth,
    StructureFromMotion,
    builder,
)
from dadmm.testing import check_problem
from tests.support.problems import Varying

SAMPLES = datasets.synthetic(40, 5, 2)[0]
TRACKS = datasets.turntable(5, 8)[0]


class Ridge:
    """f(w) = 1/2 |X w - y|^2 + alpha/2 |w|^2, which faults are made of."""

    alpha = 0.7

    def __init__(self):
        rng = np.random.default_rng(3)
        self.X, self.y = rng.normal(size=(7, 3)), rng.normal(size=7)
        self.layout = Layout.of(coef=(3,))

    def init(self, rng):
        return rng.standard_normal(3)

    def expect(self, theta):
        return None

    def prox(self, theta, stats, centre, weight):
        gram = self.X.T @ self.X + (self.alpha + weight) * np.eye(3)
        return np.linalg.solve(gram, self.X.T @ self.y + weight * centre)

    def objectives(self, thetas, stats):
        misfit = thetas @ self.X.T - self.y
        penalty = 0.5 * self.alpha * (thetas**2).sum(axis=1)
        return 0.5 * (misfit**2).sum(axis=1) + penalty


class Sweep:
    """f(u, v, s) = 1/2 |X u - v|^2 + 1/2 |v - s 1|^2 + cosh s, block by block.

    ``v`` and ``s`` together are a parabola but for cosh, so each is minimised alone.
    """

    order = ("u", "v", "s")

    def __init__(self):
        self.X = np.random.default_rng(4).normal(size=(3, 2))
        self.layout = Layout.of(u=(2,), v=(3,), s=())

    def init(self, rng):
        return rng.standard_normal(6)

    def expect(self, theta):
        return None

    def prox(self, theta, stats, centre, weight):
        out = theta.copy()
        now, aim = self.layout.views(out), self.layout.views(centre)
        for name in self.order:
            getattr(self, f"move_{name}")(now, aim, weight)
        return out

    def move_u(self, now, aim, weight):
        gram = self.X.T @ self.X + weight * np.eye(2)
        now.u[...] = np.linalg.solve(gram, self.X.T @ now.v + weight * aim.u)

    def move_v(self, now, aim, weight):
        now.v[...] = (self.X @ now.u + now.s + weight * aim.v) / (2.0 + weight)

    def move_s(self, now, aim, weight):
        for _ in range(60):
            slope = 3 * now.s - now.v.sum() + np.sinh(now.s) + weight * (now.s - aim.s)
            now.s[...] -= slope / (3.0 + np.cosh(now.s) + weight)

    def objectives(self, thetas, stats):
        u, v, s = self.layout.views(thetas)
        fit = 0.5 * ((u @ self.X.T - v) ** 2).sum(axis=1)
        return fit + 0.5 * ((v - s[:, None]) ** 2).sum(axis=1) + np.cosh(s)


class Shares(Varying):
    """Regression with a private offset, and slopes with a scale of their own."""

    def __init__(self):
        super().__init__(*datasets.regression(9, 3)[:2], {"slope": 9.0})


class Simplex:
    """f(p) = -counts' log p for p on the simplex, and infinite elsewhere."""

    counts = np.array([3.0, 1.0, 0.5])

    def __init__(self):
        self.layout = Layout.of(p=(3,))

    def init(self, rng):
        return rng.dirichlet(np.ones(3))

    def expect(self, theta):
        return None

    def prox(self, theta, stats, centre, weight):
        if weight == 0:
            return self.counts / self.counts.sum()
        low, high = -1e3 * (1 + weight), 1e3 * (1 + weight)
        for _ in range(200):  # bisection for the multiplier of sum(p) = 1
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.at(middle, centre, weight).sum() > 1 \
                else (low, middle)  # fmt: skip
        return self.at(middle, centre, weight)

    def at(self, multiplier, centre, weight):
        b = multiplier - weight * centre
        root = np.sqrt(b**2 + 4 * weight * self.counts)
        return np.where(b > 0, 2 * self.counts / (b + root), (root - b) / (2 * weight))

    def objectives(self, thetas, stats):
        inside = (np.abs(thetas.sum(axis=1) - 1) < 1e-9) & (thetas > 0).all(axis=1)
        safe = np.where(inside[:, None], thetas, 1.0)
        return np.where(inside, -np.log(safe) @ self.counts, np.inf)


def of_command_line(name):
    """Return a problem as a run builds it."""
    rows = Rows(TRACKS if name == "sfm" else SAMPLES)
    if builder.arguments(PROBLEMS[name]).takes("y"):
        rows = Rows(*datasets.classification(40, 4)[:2])
    settings = {"n_classes": 3} if name == "multinomial" else {}
    return builder.build(name, rows, {"n_components": 2}, settings)


def in_order(order):
    """Return a sweep: each part is optimal with those that follow as they were."""
    problem = Sweep()
    problem.order = order
    return problem


def smooth(**more):
    """Return a sum of cosh as a smooth function."""
    return Smooth(lambda x: (np.cosh(x).sum(), np.sinh(x)), 3, convex=True, **more)


GOOD = {name: partial(of_command_line, name) for name in PROBLEMS}
GOOD |= {order: partial(in_order, order) for order in ("uvs", "svu", "vus", "usv")}
GOOD |= {
    "private and scaled parts": Shares,
    "a domain with a border": Simplex,  # only ways between visited points stay inside
    "free offsets": lambda: StructureFromMotion(remove_entries(TRACKS / 100, 0.2, 0)),
    "smooth": smooth,
    "smooth with a Hessian": partial(smooth, hessian=lambda x: np.diag(np.cosh(x))),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_problems_pass(name):
    """A new line of `PROBLEMS` is checked here by itself."""
    problem = GOOD[name]()
    fixed = ["mu"] if isinstance(problem, StructureFromMotion) else []

    check_problem(problem, fixed=fixed, rtol=1e-2 if "smooth" in name else 1e-4)


def step(problem, theta, stats, centre, weight):
    """Return the right step."""
    return Ridge.prox(problem, theta, stats, centre, weight)


def value(problem, thetas, stats=None):
    """Return the right objectives."""
    return Ridge.objectives(problem, thetas, stats)


def noise(size=1.0):
    """Return numbers that no seed decides."""
    return size * np.random.default_rng().standard_normal(3)


def count(problem, thetas, stats):
    """Return values that change with the number of calls."""
    problem.calls = getattr(problem, "calls", 0) + (len(thetas) > 1)
    return value(problem, thetas) + (problem.calls == 3)


def shrink_twice(problem, theta, stats, centre, weight):
    """Return a step of the lasso below, with twice its alpha."""
    aim = weight * centre / (2.0 + weight)
    return np.sign(aim) * np.maximum(np.abs(aim) - 0.2 / (2.0 + weight), 0.0)


def old_values(problem, theta, stats, centre, weight):
    """Return a sweep whose second part takes the old values of the first."""
    out = Sweep.prox(problem, theta, stats, centre, weight)
    old = problem.layout.views(theta.copy())
    problem.move_v(old, problem.layout.views(centre), 0.5 * weight)
    problem.layout.views(out).v[...] = old.v
    return out


def without_scales(problem, theta, stats, centre, weight):
    """Return a step that takes the same weight for all parts."""
    gram = problem.design.T @ problem.design + weight * np.eye(4)
    return np.linalg.solve(gram, problem.design.T @ problem.y + weight * centre)


FAR = {"init": lambda p, rng: 9.0 + rng.standard_normal(3)}  # so that no step rises
BUFFER = np.empty(3)
FIXED_LAYOUT = property(lambda p: None, lambda p, value: None)
# the method that is named, and a word about its fault, of a class that differs from a
# good one by its methods
FAULTS = [
    ("prox", "", {"prox": None}),
    ("layout", "", {"layout": FIXED_LAYOUT}),
    ("init", "(3, 1)", {"init": lambda p, rng: np.zeros((3, 1))}),
    ("init", "seed", {"init": lambda p, rng: noise()}),
    ("expect", "theta", {"expect": lambda p, x: np.copyto(x, 2 * x)}),
    ("prox", "theta",
     {"prox": lambda p, x, *on: np.copyto(x, step(p, x, *on)) or x.copy()}),
    ("prox", "centre",
     {"prox": lambda p, x, s, c, w: np.copyto(c, w * c) or step(p, x, s, c, w)}),
    ("prox", "memory with theta", {"prox": lambda p, x, *on: x}),
    ("prox", "again",
     {"prox": lambda p, *on: np.copyto(BUFFER, step(p, *on)) or BUFFER}),
    ("prox", "NoneType", {"prox": lambda p, *on: None}),
    ("prox", "float32", {"prox": lambda p, *on: step(p, *on).astype(np.float32)}),
    ("prox", "nan in part coef",
     {"prox": lambda p, x, s, c, w: step(p, x, s, c, w) * np.float64(w) / w}),
    ("prox", "bits", {"prox": lambda p, *on: step(p, *on) + noise(1e-12)}),
    ("prox", "rise", {"prox": lambda p, x, *on: x - 0.5 * (step(p, x, *on) - x)}),
    ("prox", "slope",
     {"prox": lambda p, x, s, c, w: step(p, x, s, c, 0.0), **FAR}),
    ("prox", "slope", {"prox": lambda p, x, s, c, w: step(p, x, s, c, 2.0 * w)}),
    ("prox", "slope",
     {"prox": lambda p, x, s, c, w: step(p, x, s, -c, w), **FAR}),
    ("prox", "slope",
     {"objectives": lambda p, x, s: value(p, x) - 0.5 * p.alpha * (x**2).sum(1)}),
    ("prox", "slope",
     {"prox": shrink_twice,
      "objectives": lambda p, x, s: (x**2 + 0.1 * np.abs(x)).sum(axis=1)}),
    ("prox", "grows", {"prox": lambda p, x, s, c, w: step(p, x, s, c, min(w, 100.0))}),
    ("objectives", "float64", {"objectives": lambda p, x, s: value(p, x).sum()}),
    ("objectives", "inf", {"objectives": lambda p, x, s: value(p, x) + np.inf}),
    ("objectives", "rows", {"objectives": lambda p, x, s: value(p, x - x.mean(0))}),
    ("objectives", "again", {"objectives": count}),
    ("objectives", "thetas",
     {"objectives": lambda p, x, s: np.copyto(x, x - 1.0) or value(p, x)}),
]  # fmt: skip
OTHERS = [
    ("prox", "part v", Sweep, {"prox": old_values}),
    ("prox", "part s",
     Sweep, {"move_s": lambda p, now, aim, w: Sweep.move_s(p, now, aim, 2.0 * w)}),
    ("prox", "", Shares, {"prox": without_scales}),
    ("prox", "", Simplex,
     {"at": lambda p, multiplier, c, w: Simplex.at(p, multiplier, 0.5 * c, w)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "word", "base", "methods"),
    [(method, word, Ridge, methods) for method, word, methods in FAULTS] + OTHERS,
)
def test_a_fault_is_told_with_its_method(method, word, base, methods):
    faulty = type("Faulty", (base,), methods)
    with pytest.raises(ProblemError) as caught:
        check_problem(faulty())

    said = str(caught.value)
    assert said.startswith("Faulty")
    assert method in said
    assert word in said
    assert "\n" not in said


def test_the_tolerance_is_the_callers():
    """A step that is good to 1e-3 passes where that is allowed."""

    class Sloppy(Ridge):
        def prox(self, theta, stats, centre, weight):
            return super().prox(theta, stats, centre, weight * (1 + 1e-3))

    check_problem(Sloppy(), rtol=1e-2)
    with pytest.raises(ProblemError, match="slope"):
        check_problem(Sloppy())


X, Y = datasets.regression(30, 3)[:2]


class Reckless(LogisticRegression):
    """Its curvature at theta is claimed for points around it."""

    def rows(self, theta, radius=0.0):
        return 1.01 * super().rows(theta)


def with_fault(**methods):
    """Return least squares with other methods; they are stacked by themselves."""
    kind = property(lambda p: (type(p), p.layout))
    return type("Faulty", (LeastSquares,), {"kind": kind, **methods})(X, Y)


MORE = [
    ("within", lambda: with_fault(within=lambda p, T: LeastSquares.within(p, 2 * T))),
    ("4 parameters",
     lambda: with_fault(within=lambda p, T: LeastSquares.within(p, T[:, :-1]))),
    ("theta_of",
     lambda: with_fault(theta_of=lambda p, T, z: LeastSquares.theta_of(p, T, z) + 1)),
    ("rows",
     lambda: with_fault(rows=lambda p, x, radius=0.0: 1.1 * LeastSquares.rows(p, x))),
    ("stack", lambda: with_fault(stack=classmethod(
        lambda cls, problems: LeastSquares.stack([LeastSquares(2 * X, Y)] * 2)))),
    ("rows", lambda: Reckless(X, (Y > 0).astype(float), 0.1)),
    ("part mu", lambda: PPCA(SAMPLES, 2, zero_mean=True)),
]  # fmt: skip


@pytest.mark.parametrize(("culprit", "build"), MORE)
def test_other_faults_are_told_with_their_method(culprit, build):
    with pytest.raises(ProblemError, match=culprit):
        check_problem(build())


@pytest.mark.parametrize(("fixed", "culprit"), [("mu", "part mu"), ("m", "'m'")])
def test_only_parts_that_are_held_may_be_named(fixed, culprit):
    with pytest.raises(ProblemError, match=culprit):
        check_problem(PPCA(SAMPLES, 2), fixed=[fixed])
