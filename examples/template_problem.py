"""A problem of your own, to copy: ridge regression with an intercept.

    python examples/template_problem.py         # checks its contract
    python -m dadmm.run --problem examples.template_problem:RidgeWithIntercept

The constructor receives this node's rows first. An argument ``y`` receives their target
(``--target``). Other arguments are set by name, by flags such as ``--alpha`` or by
``--problem-settings '{"alpha": 0.1}'``.
"""

import numpy as np

from dadmm import Layout
from dadmm.testing import check_problem


class RidgeWithIntercept:
    """f(coef, intercept) = 1/2 |X coef + intercept - y|^2 + alpha/2 |coef|^2."""

    convex = True  # then a converged run estimates its distance from the optimum

    def __init__(self, X, y, alpha=1.0):
        self.rows, self.y = np.column_stack([X, np.ones(len(X))]), y
        self.penalty = np.append(np.full(X.shape[1], alpha), 0.0)
        self.layout = Layout.of(coef=(X.shape[1],), intercept=())

    def init(self, rng):
        """Return the starting point, the same for the same rng."""
        return np.zeros(self.layout.size)

    def expect(self, theta):
        """Return the statistics of an E-step at theta; there are none here."""
        return None

    def prox(self, theta, stats, centre, weight):
        """Return the x that minimises f(x) + weight/2 |x - centre|^2."""
        hessian = self.rows.T @ self.rows + np.diag(self.penalty + weight)
        pull = self.rows.T @ self.y + weight * centre
        return np.linalg.lstsq(hessian, pull)[0]  # also if weight and alpha are 0

    def objectives(self, thetas, stats):
        """Return f of each row of thetas."""
        misfit = thetas @ self.rows.T - self.y
        return 0.5 * (misfit**2).sum(axis=1) + 0.5 * (thetas**2) @ self.penalty


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    check_problem(RidgeWithIntercept(rng.normal(size=(9, 3)), rng.normal(size=9)))
    print("RidgeWithIntercept keeps the contract of dadmm.core.interfaces.Problem")
