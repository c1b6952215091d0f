"""A problem of your own, to copy: ridge regression with an intercept.

    python examples/template_problem.py         # checks its contract
    python -m dadmm.run --problem examples.template_problem:RidgeWithIntercept

The constructor receives this node's rows first. An argument ``y`` receives their target
(``--target``). Other arguments are set by name, by flags such as ``--alpha`` or by
``--problem-settings '{"alpha": 0.1}'``.

The members up to ``objectives`` are needed. The others are for results with a bound on
their error, and for data in any units (docs/accuracy.md).
"""

import copy

import numpy as np

from dadmm import Layout
from dadmm.testing import check_problem


class RidgeWithIntercept:
    """f(coef, intercept) = 1/2 |X coef + intercept - y|^2 + alpha/2 |coef|^2."""

    def __init__(self, X, y, alpha=1.0):
        d = X.shape[1]
        self.layout = Layout.of(coef=(d,), intercept=())
        # f(theta) = 1/2 |A theta - b|^2; the last rows of A are the penalty
        self.A = np.eye(len(X) + d, d + 1, -len(X)) * np.sqrt(alpha)
        self.A[: len(X)] = np.column_stack([X, np.ones(len(X))])
        self.b = np.append(y, np.zeros(d))

    def init(self, rng):
        """Return the starting point, the same for the same rng."""
        return np.zeros(self.layout.size)

    def expect(self, theta):
        """Return the statistics of an E-step at theta; there are none here."""
        return None

    def prox(self, theta, stats, centre, weight):
        """Return the x that minimises f(x) + weight/2 |x - centre|^2."""
        hessian = self.A.T @ self.A + weight * np.eye(len(centre))
        pull = self.A.T @ self.b + weight * centre
        return np.linalg.lstsq(hessian, pull)[0]  # also if weight and alpha are 0

    def objectives(self, thetas, stats):
        """Return f of each row of thetas."""
        misfit = thetas @ self.A.T - self.b
        return 0.5 * (misfit**2).sum(axis=1)

    convex = True
    exact = True  # `prox` is exact, not the result of an iteration
    quadratic = True  # `rows` is the same everywhere

    def rows(self, theta, radius=0.0):
        """Return F with F'F at most the Hessian of f within ``radius`` of theta."""
        return self.A

    def within(self, T):
        """Return the same f as a function of z, theta = T z."""
        found = copy.copy(self)
        found.A, found.layout = self.A @ T, Layout.of(z=(T.shape[1],))
        return found

    def point(self, T, z):
        """Return theta = T z for each row of z."""
        return (z[..., None, :] @ T.T)[..., 0, :]


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    check_problem(RidgeWithIntercept(rng.normal(size=(9, 3)), rng.normal(size=9)))
    print("RidgeWithIntercept keeps the contract of dadmm.core.interfaces.Problem")
