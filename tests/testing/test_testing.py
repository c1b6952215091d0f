"""The check of a problem's contract: what passes, and which sentence a fault gets."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Layout
from dadmm.core.errors import ProblemError
from dadmm.data import datasets
from dadmm.problems import PPCA, PROBLEMS, StructureFromMotion, builder
from dadmm.testing import check_problem
from tests.support.linear import NAMES, SIZES, make
from tests.support.problems import quadratics

SAMPLES = datasets.synthetic(40, 5, 2)[0]
TRACKS = datasets.turntable(5, 8)[0]


# What passes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_regression_problems_pass(name, size):
    """Smooth or not, with many rows, few, and one."""
    check_problem(make(name, size, 0)[0].problem, seed=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("zero_mean", [False, True])
def test_ppca_passes(zero_mean, seed):
    """A sweep over W, mu and a; or over W and a, with mu held."""
    problem = PPCA(SAMPLES, 2, zero_mean=zero_mean)
    check_problem(problem, fixed=["mu"] * zero_mean, seed=seed)


@pytest.mark.parametrize("start", ["frame", "random"])
def test_structure_from_motion_passes(start):
    """It is PPCA with mu at zero, from a start of its own."""
    check_problem(StructureFromMotion(TRACKS, start=start), fixed=["mu"])


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_of_the_command_line_passes(name):
    """Built as a run builds it; a new line of `PROBLEMS` is checked here by itself."""
    rows = TRACKS if name == "sfm" else SAMPLES
    if builder.arguments(PROBLEMS[name]).takes("y"):
        rows = np.column_stack(datasets.classification(40, 4)[:2])
    problem = builder.build(name, rows, {"n_components": 2}, {})

    check_problem(problem, fixed=["mu"] if name == "sfm" else [])


def test_a_quadratic_passes():
    """The problem that the other tests are built of."""
    check_problem(quadratics(1, size=3)[0])


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


@pytest.mark.parametrize("order", ["uvs", "svu", "vus", "usv"])
def test_a_sweep_passes_in_any_order(order):
    """Each part is optimal with those that follow as they were before."""
    problem = Sweep()
    problem.order = order

    check_problem(problem)


def test_parts_may_be_minimised_together():
    """Two of three, before the third: to the end of their own sweeps."""
    problem = Sweep()
    problem.order = "uv" * 200 + "s"

    check_problem(problem)


class Shares(Ridge):
    """Ridge with a private offset, and a part with a scale of its own."""

    def __init__(self):
        super().__init__()
        shapes = {"head": (2,), "tail": (1,), "offset": ()}
        self.layout = Layout(shapes, private=["offset"], scales={"tail": 9.0})
        self.X = np.column_stack([self.X, np.ones(7)])

    def init(self, rng):
        return rng.standard_normal(4)

    def prox(self, theta, stats, centre, weight):
        pull = weight * self.layout.pull
        gram = self.X.T @ self.X + np.diag(self.alpha + pull)
        return np.linalg.solve(gram, self.X.T @ self.y + pull * centre)


def test_private_and_scaled_parts_are_weighed_by_the_layout():
    """Nothing pulls at what is private, and a scale counts."""
    check_problem(Shares())


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


def test_a_domain_may_have_a_border():
    """Then only ways that stay inside count: those between visited points."""
    check_problem(Simplex())


def test_a_wrong_point_inside_a_domain_is_found():
    """Though every coordinate leads out of it."""
    problem = Simplex()
    problem.at = lambda multiplier, centre, weight: Simplex.at(
        problem, multiplier, 0.5 * centre, weight
    )
    with pytest.raises(ProblemError, match=r"found a slope of -|not to rise"):
        check_problem(problem)


# What does not

FAULTS = {}


def fault(sentence, base=Ridge):
    """Register a class that differs from a good one by a fault."""

    def register(kind):
        FAULTS[kind.__name__] = sentence, type(kind.__name__, (kind, base), {})
        return kind

    return register


@fault("has no method prox(theta, stats, centre, weight), which returns the new (size")
class NoProx:
    prox = None


@fault("has no layout, a dadmm.Layout with at least one entry; set it in the constr")
class NoLayout:
    layout = property(lambda self: None, lambda self, value: None)


@fault("has no layout, a dadmm.Layout with at least one entry; set it in the constr")
class PlainLayout:
    layout = property(lambda self: {"coef": 3}, lambda self, value: None)


@fault(".init: expected an array of shape (3,), found shape (3, 1); layout.pack")
class WrongInit:
    def init(self, rng):
        return np.zeros((3, 1))


@fault(".init: expected float64, found int64; convert it")
class WholeInit:
    def init(self, rng):
        return np.zeros(3, dtype=np.int64)


@fault(".init: expected finite numbers, found nan in part coef")
class UnknownInit:
    def init(self, rng):
        return np.full(3, np.nan)


@fault(".init: expected the same point from the same seed, found another; draw ")
class RandomInit:
    def init(self, rng):
        return np.random.default_rng().standard_normal(3)


@fault(".expect: expected theta not to change, found it modified; work on theta")
class BusyExpect:
    def expect(self, theta):
        theta *= 2.0


@fault(".prox: expected theta not to change, found it modified; work on theta")
class InPlace:
    def prox(self, theta, stats, centre, weight):
        theta[:] = super().prox(theta, stats, centre, weight)
        return theta.copy()


@fault(".prox: expected centre not to change, found it modified; work on centre")
class MovesCentre:
    def prox(self, theta, stats, centre, weight):
        centre *= weight
        return super().prox(theta, stats, centre / max(weight, 1e-9), weight)


@fault(".prox: expected a new array, found one that shares memory with theta")
class SameArray:
    def prox(self, theta, stats, centre, weight):
        return theta


@fault(".prox: expected a new array, found that the result changed when prox")
class Buffer:
    buffer = np.empty(3)

    def prox(self, theta, stats, centre, weight):
        self.buffer[:] = super().prox(theta, stats, centre, weight)
        return self.buffer


@fault(".prox with weight 1: expected an array of shape (3,), found NoneType; layout.p")
class Forgetful:
    def prox(self, theta, stats, centre, weight):
        super().prox(theta, stats, centre, weight)


@fault(".prox with weight 1: expected an array of shape (3,), found shape (1, 3)")
class RowVector:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, weight)[None]


@fault(".prox with weight 1: expected float64, found float32; convert it")
class Single:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, weight).astype(np.float32)


@fault(".prox with weight 0: expected finite numbers, found nan in part coef; guard")
class DividesByWeight:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, weight) * np.float64(weight) / weight


@fault(".prox: expected the same bits from the same arguments, found other bits")
class Random:
    def prox(self, theta, stats, centre, weight):
        noise = 1e-12 * np.random.default_rng().standard_normal(3)
        return super().prox(theta, stats, centre, weight) + noise


@fault("with weight 1; check signs, and that objectives has all terms that prox has")
class Uphill:
    def prox(self, theta, stats, centre, weight):
        best = super().prox(theta, stats, centre, weight)
        return theta - 0.5 * (best - theta)


@fault("prox seems to ignore the weight")
class NoWeight:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, 0.0)

    def init(self, rng):
        return 9.0 + rng.standard_normal(3)  # far off, so that this does not rise


@fault("prox seems to take the proximal term 2 times")
class TwiceTheWeight:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, 2.0 * weight)


@fault("prox seems to take the proximal term 0.5 times")
class HalfTheWeight:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, 0.5 * weight)


@fault("prox seems to take -centre for centre")
class WrongSign:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, -centre, weight)

    def init(self, rng):
        return 9.0 + rng.standard_normal(3)


@fault("check that prox and objectives have the same terms, regulariser included")
class NoRegulariser:
    def objectives(self, thetas, stats):
        return 0.5 * ((thetas @ self.X.T - self.y) ** 2).sum(axis=1)


@fault("found a slope of -")
class TooEasy:
    """A lasso that shrinks by twice its alpha."""

    def prox(self, theta, stats, centre, weight):
        aim = weight * centre / (2.0 + weight)
        return np.sign(aim) * np.maximum(np.abs(aim) - 0.2 / (2.0 + weight), 0.0)

    def objectives(self, thetas, stats):
        return (thetas**2).sum(axis=1) + 0.1 * np.abs(thetas).sum(axis=1)


@fault(".objectives: expected an array of shape (3,), found shape (); return f of each")
class OneValue:
    def objectives(self, thetas, stats):
        return super().objectives(thetas, stats).sum()


@fault(".objectives: expected an array of shape (3,), found shape (3, 1)")
class Column:
    def objectives(self, thetas, stats):
        return super().objectives(thetas, stats)[:, None]


@fault(".objectives: expected finite values at the results of init and prox, found inf")
class Infinite:
    def objectives(self, thetas, stats):
        return super().objectives(thetas, stats) + np.inf


@fault("whatever the other rows, found")
class Centred:
    def objectives(self, thetas, stats):
        return super().objectives(thetas - thetas.mean(axis=0), stats)


@fault("when asked again; sum over the last axis only, and keep no state")
class Counting:
    calls = 0

    def objectives(self, thetas, stats):
        self.calls += len(thetas) > 1
        return super().objectives(thetas, stats) + (self.calls == 3)


@fault(".objectives: expected thetas not to change, found it modified; work on the")
class Eats:
    def objectives(self, thetas, stats):
        thetas -= 1.0
        return super().objectives(thetas, stats)


@fault(".prox: expected the result to approach centre as weight grows, found it")
class Saturates:
    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, min(weight, 100.0))


@fault("in part v; ", Sweep)
class LazyPart:
    """Its second part takes the old values of the first."""

    def prox(self, theta, stats, centre, weight):
        out = super().prox(theta, stats, centre, weight)
        now, old = self.layout.views(out), self.layout.views(theta.copy())
        self.move_v(old, self.layout.views(centre), 0.5 * weight)
        now.v[...] = old.v
        return out


@fault("in part s; prox seems to take the proximal term 2 times", Sweep)
class HeavyPart:
    def move_s(self, now, aim, weight):
        super().move_s(now, aim, 2.0 * weight)


@fault("found a slope of -", Shares)
class BlindToScales:
    def prox(self, theta, stats, centre, weight):
        gram = self.X.T @ self.X + (self.alpha + weight) * np.eye(4)
        return np.linalg.solve(gram, self.X.T @ self.y + weight * centre)


@fault(".stack: expected the same bits from prox of a stack and of a problem alone")
class Stacks:
    @classmethod
    def stack(cls, problems):
        return StackOf(problems)

    # a class stacks what it defines itself, not what it inherits
    def expect(self, theta):
        return super().expect(theta)

    def prox(self, theta, stats, centre, weight):
        return super().prox(theta, stats, centre, weight)

    def objectives(self, thetas, stats):
        return super().objectives(thetas, stats)


class StackOf:
    """A stack whose bits are not those of its problems."""

    def __init__(self, problems):
        self.problems = problems

    def expect(self, thetas):
        return None

    def prox(self, thetas, stats, centres, weights):
        rows = zip(self.problems, thetas, centres, weights, strict=True)
        return np.array([1.0 + p.prox(x, None, c, w) for p, x, c, w in rows])

    def objectives(self, thetas, stats):
        rows = zip(self.problems, thetas, strict=True)
        return np.array([p.objectives(x, None) for p, x in rows])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_sentence(name):
    """Which names the class, and says what was expected and found."""
    sentence, kind = FAULTS[name]
    with pytest.raises(ProblemError) as caught:
        check_problem(kind())

    said = str(caught.value)
    assert said.startswith(name)
    assert sentence in said
    assert "\n" not in said


def test_a_part_that_is_held_must_be_named():
    """Else it counts as a part that is not optimal."""
    with pytest.raises(ProblemError, match="in part mu; "):
        check_problem(PPCA(SAMPLES, 2, zero_mean=True))


def test_a_part_that_is_named_must_be_held():
    """And it must be there."""
    with pytest.raises(ProblemError, match="expected the fixed part mu not to change"):
        check_problem(PPCA(SAMPLES, 2), fixed=["mu"])
    with pytest.raises(ProblemError, match="unknown part 'm'; the parts are W, mu, a"):
        check_problem(PPCA(SAMPLES, 2), fixed=["m"])


def test_the_tolerance_is_the_callers():
    """A step that is good to 1e-3 passes where that is allowed."""

    class Sloppy(Ridge):
        def prox(self, theta, stats, centre, weight):
            return super().prox(theta, stats, centre, weight * (1 + 1e-3))

    check_problem(Sloppy(), rtol=1e-2)
    with pytest.raises(ProblemError, match="found a slope"):
        check_problem(Sloppy())
