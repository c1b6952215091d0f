"""Problems satisfy `check_problem`, which names each fault; bad input is named, too."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from dadmm import Layout, problems
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.data import datasets
from dadmm.data.encoding import Rows
from dadmm.data.patterns import remove_entries
from dadmm.problems import PPCA, PROBLEMS, Smooth, StructureFromMotion, builder
from dadmm.testing import check_problem
from tests.support.problems import Quadratic, Varying

SAMPLES = datasets.synthetic(40, 5, 2)[0]
TRACKS = datasets.turntable(5, 8)[0]
X, Y = datasets.regression(30, 3)[:2]
SQUARES = PROBLEMS["least_squares"]


class Bowl(Quadratic):
    def __init__(self):
        coupled = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 1.5]])
        super().__init__(coupled, np.array([1.0, -2.0, 0.5]))


class Sweep(Bowl):
    order = "uvs"  # in which its parts become optimal

    def __init__(self):
        super().__init__()
        self.layout = Layout.of(u=(), v=(), s=())

    def prox(self, theta, stats, centre, weight):
        new = theta.copy()
        for k in map("uvs".index, self.order):
            self.move(k, new, new, centre, weight)
        return new

    def move(self, k, new, seen, centre, weight):
        """Minimise over one entry, with the others as they are seen."""
        slope = self.A[k] @ (seen - self.b) + weight * (seen[k] - centre[k])
        new[k] = seen[k] - slope / (self.A[k, k] + weight)


class Shares(Varying):
    """Regression with a private offset, and slopes with a scale of their own."""

    def __init__(self):
        super().__init__(*datasets.regression(9, 3)[:2], {"slope": 9.0})


class Plane(Bowl):
    """f is infinite unless entries sum to 1: ways between visited points stay there."""

    def init(self, rng):
        return self.onto(rng.standard_normal(3))

    def onto(self, x):
        return x + (1.0 - x.sum()) / 3.0

    def prox(self, theta, stats, centre, weight):
        return self.onto((self.b + weight * centre) / (1.0 + weight))

    def objectives(self, thetas, stats):
        far = np.abs(thetas.sum(axis=1) - 1.0) > 1e-9
        return np.where(far, np.inf, 0.5 * ((thetas - self.b) ** 2).sum(axis=1))


def of_command_line(name):
    rows = Rows(TRACKS if name == "sfm" else SAMPLES)
    if "y" in builder.arguments(PROBLEMS[name]):
        rows = Rows(*datasets.classification(40, 4)[:2])
    settings = {"multinomial": {"n_classes": 3}, "ppca": {"n_components": 2}}
    return builder.build(name, rows, settings.get(name, {}))


def smooth(**more):
    return Smooth(lambda x: (np.cosh(x).sum(), np.sinh(x)), 3, convex=True, **more)


def changed(base, **members):
    return type("Faulty", (base,), members)()


GOOD = {name: partial(of_command_line, name) for name in PROBLEMS}
GOOD |= {o: partial(changed, Sweep, order=o) for o in ("uvs", "svu", "vus")}
GOOD |= {
    "private and scaled parts": Shares,
    "a thin domain": Plane,
    "free offsets": lambda: StructureFromMotion(remove_entries(TRACKS / 100, 0.2, 0)),
    "smooth": smooth,
    "smooth with a Hessian": partial(smooth, hessian=lambda x: np.diag(np.cosh(x))),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_problems_pass(name):
    problem = GOOD[name]()
    fixed = ["mu"] if isinstance(problem, StructureFromMotion) else []

    check_problem(problem, fixed=fixed, rtol=1e-2 if "smooth" in name else 1e-4)


def of_step(new):
    """Return a `prox` that changes the right step, or what is passed to it."""
    return {
        "prox": lambda p, *on: new(partial(Quadratic.prox, p), *on),
        "init": lambda p, rng: 9.0 + rng.standard_normal(3),  # so that no step rises
    }


def of_value(new):
    """Return `objectives` that change the right ones, or what is passed to them."""
    right = Quadratic.objectives
    return {"objectives": lambda p, x, s: new(p, partial(right, p, stats=s), x)}


def noise(size=1.0):  # that no seed decides
    return size * np.random.default_rng().standard_normal(3)


def later(problem, value, thetas):
    problem.calls = getattr(problem, "calls", 0) + (len(thetas) > 1)
    return value(thetas) + (problem.calls == 3)


def shrink_twice(step, x, s, centre, weight):
    """Return a step of x^2 + 0.1 |x|, with twice its absolute values."""
    aim = weight * centre / (2.0 + weight)
    return np.sign(aim) * np.maximum(np.abs(aim) - 0.2 / (2.0 + weight), 0.0)


BUFFER = np.empty(3)
# what the error names, and the members of a bowl that has the fault
FAULTS = [
    ("prox", {"prox": None}),
    ("layout", {"layout": property(lambda p: None, lambda p, value: None)}),
    ("init|(3, 1)", {"init": lambda p, rng: np.zeros((3, 1))}),
    ("init|seed", {"init": lambda p, rng: noise()}),
    ("expect|theta", {"expect": lambda p, x: np.copyto(x, 2 * x)}),
    ("prox|theta", of_step(lambda f, x, *on: np.copyto(x, f(x, *on)) or x.copy())),
    ("prox|centre",
     of_step(lambda f, x, s, c, w: np.copyto(c, w * c) or f(x, s, c, w))),
    ("prox|memory with theta", of_step(lambda f, x, *on: x)),
    ("prox|again", of_step(lambda f, *on: np.copyto(BUFFER, f(*on)) or BUFFER)),
    ("prox|NoneType", of_step(lambda f, *on: None)),
    ("prox|float32", of_step(lambda f, *on: f(*on).astype(np.float32))),
    ("prox|nan in part x",
     of_step(lambda f, x, s, c, w: f(x, s, c, w) * np.float64(w) / w)),
    ("prox|bits", of_step(lambda f, *on: f(*on) + noise(1e-12))),
    ("prox|rise", of_step(lambda f, x, *on: x - 0.5 * (f(x, *on) - x))),
    ("prox|slope", of_step(lambda f, x, s, c, w: f(x, s, c, 1.001 * w))),
    ("prox|slope", of_value(lambda p, f, x: f(x) - 0.3 * (x**2).sum(axis=1))),
    ("prox|slope", of_step(shrink_twice)
     | of_value(lambda p, f, x: (x**2 + 0.1 * np.abs(x)).sum(axis=1))),
    ("prox|grows", of_step(lambda f, x, s, c, w: f(x, s, c, min(w, 100.0)))),
    ("objectives|float64", of_value(lambda p, f, x: f(x).sum())),
    ("objectives|inf", of_value(lambda p, f, x: f(x) + np.inf)),
    ("objectives|rows", of_value(lambda p, f, x: f(x - x.mean(axis=0)))),
    ("objectives|again", of_value(later)),
    ("objectives|thetas", of_value(lambda p, f, x: np.copyto(x, x - 1.0) or f(x))),
]  # fmt: skip


def on_rows(**members):
    """Return least squares with other members; they are stacked by themselves."""
    kind = property(lambda p: (type(p), p.layout))
    return type("Faulty", (SQUARES,), {"kind": kind, **members})(X, Y)


def without_scales(problem, theta, stats, centre, weight):
    gram = problem.design.T @ problem.design + weight * np.eye(4)
    return np.linalg.solve(gram, problem.design.T @ problem.y + weight * centre)


def all_at_once(problem, theta, stats, centre, weight):
    new = theta.copy()
    for k in range(3):  # each part sees the old values of all others
        problem.move(k, new, theta, centre, weight)
    return new


def unlike(problem, k, new, seen, centre, weight):
    Sweep.move(problem, k, new, seen, centre, weight * (1 + (k == 2)))


class Reckless(PROBLEMS["logistic"]):
    def rows(self, theta, radius=0.0):  # those at theta, also for points around it
        return 1.01 * super().rows(theta)


OTHERS = [
    ("prox|part v", lambda: changed(Sweep, prox=all_at_once)),
    ("prox|part s", lambda: changed(Sweep, move=unlike)),
    ("prox", lambda: changed(Shares, prox=without_scales)),
    ("prox|slope", lambda: changed(
        Plane, prox=lambda p, x, s, c, w: Plane.prox(p, x, s, c, 1.5 * w))),
    ("within", lambda: on_rows(within=lambda p, T: SQUARES.within(p, 2 * T))),
    ("within|4 parameters",
     lambda: on_rows(within=lambda p, T: SQUARES.within(p, T[:, :-1]))),
    ("theta_of",
     lambda: on_rows(theta_of=lambda p, T, z: SQUARES.theta_of(p, T, z) + 1)),
    ("rows", lambda: on_rows(rows=lambda p, x, radius=0.0: 1.1 * SQUARES.rows(p, x))),
    ("stack", lambda: on_rows(stack=classmethod(
        lambda cls, problems: SQUARES.stack([SQUARES(2 * X, Y)] * 2)))),
    ("rows", lambda: Reckless(X, (Y > 0).astype(float), 0.1)),
    ("prox|part mu", lambda: PPCA(SAMPLES, 2, zero_mean=True)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("culprits", "build"),
    [(words, partial(changed, Bowl, **fault)) for words, fault in FAULTS] + OTHERS,
)
def test_a_fault_is_told_with_its_method(culprits, build):
    with pytest.raises(ProblemError) as caught:
        check_problem(build())

    said = str(caught.value)
    assert "\n" not in said
    for word in culprits.split("|"):
        assert word in said


def test_parts_that_are_held_are_named_and_the_tolerance_is_the_callers():
    for fixed, culprit in (("mu", "part mu"), ("m", "'m'")):
        with pytest.raises(ProblemError, match=culprit):
            check_problem(PPCA(SAMPLES, 2), fixed=[fixed])
    sloppy = of_step(lambda f, x, s, c, w: f(x, s, c, 1.001 * w))  # see FAULTS
    check_problem(changed(Bowl, **sloppy), rtol=1e-2)


class Typed(Quadratic):
    def __init__(self, X, rate: float = 1.0):
        super().__init__(rate * np.eye(2), X[0])


def test_settings_of_a_class_of_yours_are_of_the_types_that_it_names(monkeypatch):
    monkeypatch.setattr(builder, "find", lambda name: Typed)
    rows = Rows(np.ones((3, 2)))
    assert builder.build("mine:Typed", rows, {"rate": 2}).A[0, 0] == 2.0
    with pytest.raises(ConfigError, match="rate"):
        builder.build("mine:Typed", rows, {"rate": "fast"})


ROWS, TARGETS, NAN = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0]), np.nan
HOLED = np.where(ROWS == 3, NAN, ROWS)
WEIGHT = "sample_weight"
# the class, what is at fault, further arguments, and by name
LINEAR = [
    ("Ridge", "X", (TARGETS, TARGETS)),
    ("Ridge", "X", (sparse.csr_array((3, 0)), TARGETS)),
    ("LeastSquares", "X", ([["a"]], [1.0])),
    ("ElasticNet", "row 1, column 1", (HOLED, TARGETS)),
    ("LeastSquares", "row 1, column 1", (sparse.csr_array(HOLED), TARGETS)),
    ("LeastSquares", "y", (ROWS, TARGETS[:2])),
    ("LogisticRegression", "row 2", (ROWS, [0, 1, np.inf])),
    ("LogisticRegression", "labels", (ROWS, [-1, 0, 1])),
    ("MultinomialLogistic", "labels", (ROWS, [0, 1, 3], 3)),
    ("MultinomialLogistic", "labels", (ROWS, [0, 1, 0.5], 3)),
    ("MultinomialLogistic", "labels", (ROWS, [-1, 0, 1], 3)),
    ("PoissonRegression", "-2", (ROWS, [0, 1, -2])),
    ("Ridge", "alpha", (ROWS, TARGETS, -1)),
    ("ElasticNet", "l1_ratio", (ROWS, TARGETS, 1.0, 1.5)),
    ("Huber", "delta", (ROWS, TARGETS, 0)),
    ("MultinomialLogistic", "n_classes", (ROWS, TARGETS, 1)),
    ("Ridge", "fit_intercept", (ROWS, TARGETS), {"fit_intercept": "no"}),
    ("Ridge", WEIGHT, (ROWS, TARGETS), {WEIGHT: [1, 1]}),
    ("LogisticRegression", WEIGHT, (ROWS, TARGETS), {WEIGHT: ["a", "b", "c"]}),
    ("LeastSquares", WEIGHT, (ROWS, TARGETS), {WEIGHT: np.zeros(3)}),
    ("Huber", "row 1", (ROWS, TARGETS), {WEIGHT: [1, -1, 1]}),
    ("Lasso", "row 2", (ROWS, TARGETS), {WEIGHT: [1, 1, np.inf]}),
    ("Ridge", "complex", (1j * ROWS, TARGETS)),
    ("Ridge", "complex", (sparse.csr_array(1j * ROWS), TARGETS)),
    ("Huber", "datetime", (ROWS, TARGETS.astype("datetime64[D]"))),
    ("Ridge", "row 2, column 1", (np.ma.masked_equal(ROWS, 5.0), TARGETS)),
]


def square(x):
    return 0.5 * x @ x, x


def fails(x):
    raise KeyError("rate\nof")


def bent(hessian, convex=True):
    return partial(Smooth, square, 2, hessian=lambda x: hessian, convex=convex)


SMOOTH = [
    ("size", partial(Smooth, square, 0)),
    ("convex", partial(Smooth, square, 2, convex="yes")),
    ("start", partial(Smooth, square, 2, start=np.ones(3))),
    ("float64", partial(Smooth, np.sum, 2)),
    ("gradient", partial(Smooth, lambda x: (0.0, x[None]), 2)),
    ("gradient", partial(Smooth, lambda x: (0.0, ["a", "b"]), 2)),
    ("value", partial(Smooth, lambda x: (x, x), 2)),
    ("value is inf", partial(Smooth, lambda x: (np.inf, x), 2)),
    ("entry 1", partial(Smooth, lambda x: (0.0, np.array([0.0, NAN])), 2)),
    ("KeyError", partial(Smooth, fails, 2)),
    ("convex", bent(np.eye(2), convex=False)),
    ("hessian", bent(np.ones(2))),
    ("symmetric", bent(np.tri(2))),
    ("eigenvalue", bent(-np.eye(2))),
    ("hessian", bent(2 * np.eye(2))),
]
BAD_SAMPLES = [
    ("n_components", np.ones((9, 1))), ("samples", np.ones((0, 4))),
    ("missing", np.full((3, 4), NAN)), ("row 1, column 1", np.diag([NAN, np.inf])),
    ("samples", np.full(4, NAN)), ("samples of numbers", [["a", "b"]]),
    ("complex", np.eye(3, dtype=complex)),
]  # fmt: skip
CALLS = [
    *((word, partial(getattr(problems, kind), *given, **dict(*named)))
      for kind, word, given, *named in LINEAR),
    *SMOOTH,
    *((word, partial(kind, x, 1)) for word, x in BAD_SAMPLES
      for kind in (PPCA, problems.IncompletePPCA)),
    *(("n_components", partial(problems.metrics.ppca_reference, np.eye(3), M))
      for M in (0, 3)),
    ("zero_mean", partial(PPCA, np.eye(3), 1, zero_mean="no")),
    ("rows of numbers", partial(StructureFromMotion, [["a"] * 3] * 2)),
    *(("rows", partial(StructureFromMotion, np.ones(s))) for s in ((3, 5), 4, (0, 5))),
    ("start", partial(StructureFromMotion, np.ones((4, 6)), start="middle")),
]  # fmt: skip


@pytest.mark.parametrize(("culprit", "call"), CALLS)
def test_bad_input_is_named(culprit, call):
    with pytest.raises(ProblemError, match=culprit) as caught:
        call()

    assert "\n" not in str(caught.value)
