"""
Estimators for scikit-learn
===========================

Use dadmm where scikit-learn expects an estimator: in pipelines and in grid searches.

The estimators of ``dadmm.sklearn`` split the rows over the nodes of a graph and fit
them by ADMM, here in one process. Under ``mpiexec``, with ``comm=MPI.COMM_WORLD``, each
rank passes its own rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dadmm.show.style import BLUE, GREY, ORANGE, STYLE
from dadmm.sklearn import LogisticRegression

plt.rcParams.update(STYLE)

# %%
# A grid search
# -------------
# ``C`` has scikit-learn's meaning, for the rows of all nodes together. The network is
# given by ``n_nodes`` and ``topology``. The grid search fits every value of ``C`` on
# three folds, and then the best one on all rows.

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

values = np.logspace(-3, 1, 5)
search = GridSearchCV(
    make_pipeline(StandardScaler(), LogisticRegression(n_nodes=6, topology="ring")),
    {"logisticregression__C": values},
    cv=3,
)
search.fit(X_train, y_train)
best = search.best_params_["logisticregression__C"]
print(f"best C: {best:g}")
print(f"accuracy on new rows: {search.score(X_test, y_test):.3f}")

# %%
# What the fit knows
# ------------------
# The fitted estimator has the attributes of scikit-learn's, and ``result_``, the result
# of ``dadmm.solve``. The first entries of its certificate bound the errors of the
# coefficients.

fitted = search.best_estimator_[-1]
bound = fitted.result_.certificate.coefficients[:-1].max()
print(f"{fitted.result_.status} after {fitted.result_.iterations} iterations")
print(f"coefficients are within {bound:.0e} of the solution for all rows")

# %%
# The same in scikit-learn, with all rows in one place:

exact = linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-10)
pooled = GridSearchCV(
    make_pipeline(StandardScaler(), exact), {"logisticregression__C": values}, cv=3
)
pooled.fit(X_train, y_train)
reference = pooled.best_estimator_[-1].coef_
difference = np.abs(fitted.coef_ - reference).max()
print(f"largest difference of a coefficient: {difference:.0e}")
same = (search.predict(X_test) == pooled.predict(X_test)).all()
print("the same labels on new rows:", same)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for found, name, look in (
    (pooled, "scikit-learn, rows in one place", {"color": GREY, "linewidth": 6}),
    (search, "dadmm, rows on six nodes", {"color": BLUE, "marker": "o"}),
):
    left.semilogx(values, found.cv_results_["mean_test_score"], label=name, **look)
left.axvline(best, color=ORANGE, linestyle="--", label="best C")
left.set(xlabel="C (large: weak penalty)", ylabel="accuracy in cross-validation")
left.set_title("Grid search")
left.legend()
left.grid()

ends = [reference.min(), reference.max()]
right.plot(ends, ends, color=GREY, label="equal")
right.plot(reference.ravel(), fitted.coef_.ravel(), "o", color=BLUE)
right.set(xlabel="scikit-learn, rows in one place", ylabel="dadmm, rows on six nodes")
right.set_title("Coefficients at the best C")
right.legend()
right.grid()
figure.savefig("sklearn_estimators.png")
