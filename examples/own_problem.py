"""
A problem of your own
=====================

Write the objective of a node as a class, check it, and solve it over a network.

This is a file to copy. The problem is ridge regression with an intercept. The class can
also be used by its name, without registration: ``dadmm run --nodes 6 --problem
examples.own_problem:RidgeWithIntercept``. The constructor receives this node's rows
first. An argument ``y`` receives their target. Other arguments are set by name, as in
``--alpha 0.1``.
"""

import copy

import numpy as np

import dadmm

# %%
# The class
# ---------
# A problem knows nothing of graphs, multipliers or penalties. The members up to
# ``objectives`` are needed. The most important one is ``prox``, the step of one node:
# its objective plus a pull towards ``centre``. The engine computes centre and weight.
#
# The members after ``objectives`` are for convex problems. With them a run chooses its
# coordinates, so that the units of the columns do not matter, and bounds the error of
# its result (:doc:`/docs/accuracy`).


class RidgeWithIntercept:
    """f(coef, intercept) = 1/2 |X coef + intercept - y|^2 + alpha/2 |coef|^2."""

    def __init__(self, X, y, alpha=1.0):
        d = X.shape[1]
        self.layout = dadmm.Layout.of(coef=(d,), intercept=())
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
        found.A, found.layout = self.A @ T, dadmm.Layout.of(z=(T.shape[1],))
        return found

    def theta_of(self, T, z):
        """Return theta = T z for each row of z."""
        return (z[..., None, :] @ T.T)[..., 0, :]


# %%
# The check
# ---------
# ``check_problem`` compares the members with each other, for instance ``prox`` with
# finite differences of ``objectives``. If something is wrong, one sentence says what.
# The guard keeps the rest of this file from running when another program imports the
# class.

if __name__ == "__main__":
    X, y, true_coef = dadmm.datasets.regression(n_samples=120, dimension=8)
    y = y + 2.0  # the true intercept
    n_nodes, alpha = 6, 0.6
    problems = [
        RidgeWithIntercept(X[i::n_nodes], y[i::n_nodes], alpha / n_nodes)
        for i in range(n_nodes)
    ]
    dadmm.testing.check_problem(problems[0])
    print("RidgeWithIntercept keeps the contract of a problem")

# %%
# The run
# -------
# Each node has a part of the rows and of ``alpha``, so that the sum over the nodes is
# the problem of all rows. ``solve`` takes the problems as they are.

if __name__ == "__main__":
    result = dadmm.solve(problems, dadmm.Topology.ring(n_nodes))
    print(f"{result.status} after {result.iterations} iterations")

    pooled = RidgeWithIntercept(X, y, alpha)
    best = np.linalg.lstsq(pooled.A, pooled.b)[0]
    error = np.abs(result.solution - best).max()
    bound = result.certificate.coefficients.max()
    print(f"largest error of a coefficient: {error:.1e}, bounded by {bound:.1e}")
    print("intercept:", result.parts(0).intercept.round(2))

# %%
# The nodes found the coefficients for all rows, not for their own rows:

if __name__ == "__main__":
    import matplotlib.pyplot as plt

    from dadmm.show.style import BLACK, BLUE, GREY, STYLE

    plt.rcParams.update(STYLE)
    alone = [np.linalg.lstsq(problem.A, problem.b)[0][:-1] for problem in problems]
    figure, axis = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    ticks = np.arange(1, 9)
    for k, coef in enumerate(alone):
        label = "a node alone" if k == 0 else None
        axis.plot(ticks, coef, "x", color=GREY, label=label)
    axis.plot(ticks, true_coef, "_", color=BLACK, markersize=22, label="truth")
    axis.plot(ticks, result.parts(0).coef, "o", color=BLUE, label="all nodes together")
    axis.legend()
    axis.set(
        xlabel="coefficient", ylabel="value", title="Ridge regression on six nodes"
    )
    figure.savefig("own_problem.png")
