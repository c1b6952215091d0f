"""Results of runs of `tests.campaigns.bits`, compared with stored ones.

They guard against changes that no other test sees. After a change that is meant to
alter results, record them anew and say so in the changelog. Those that still agree
are kept to the last bit::

    python -m tests.solver.test_golden
"""

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.campaigns import bits
from tests.support.runs import arrays_of, history_of, run_job

FILE = Path(__file__).with_name("golden.npz")
STORED = dict(np.load(FILE))
# runs that take a moment, and in which rounding decides on the last digits only
CHOSEN = (
    "ppca (snap|fixed|ap|nap|vp_nap|global_balance|merged) ring|gaps s?nap|"
    "sfm snap|.* metric|(logistic|multinomial|poisson) .*|ridge --(?!payload float).*|"
    "ppca --(payload quantised|censor|send|edge|coupling).*"
)
RUNS = {k: v.split() for k, v in bits.lines().items() if re.fullmatch(CHOSEN, k)}
PARTS = ("W", "mu", "a", "coef", "intercept", "eta", "edge_bytes")
COLUMNS = ("objective", "primal", "dual")


def arrays(name):
    """Return what a run finds, of three nodes or edges."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("os.fsync", lambda file: None)  # no file has to last
        bits.write_table(Path(folder))
        out = run_job(*RUNS[name])
        found, (header, *rows) = arrays_of(out), history_of(out)
    last = dict(zip(header, zip(*rows[-3:], strict=True), strict=True))
    found = {key: found[key][:3] for key in PARTS if key in found}
    found |= {column: np.array(last[column], float) for column in COLUMNS}
    return {f"{name}: {key}": array for key, array in found.items()}


def compare(key, values):
    """Assert that an array agrees to 1e-9 of its largest value: a BLAS may round.

    Differences below 1e-14 of the largest parameter are rounding, too: a residual of a
    run that has converged can be nothing else.
    """
    name, wanted = key.rpartition(": ")[0], STORED[key]
    theta = STORED.get(f"{name}: W", STORED.get(f"{name}: coef"))
    atol = max(1e-9 * np.abs(wanted).max(), 1e-14 * np.abs(theta).max())
    assert_allclose(values, wanted, 1e-9, atol, err_msg=key)


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_that_were_recorded(name):
    for key, values in arrays(name).items():
        compare(key, values)


if __name__ == "__main__":
    found = {k: v for name in RUNS for k, v in arrays(name).items()}
    for key in found:
        try:
            compare(key, found[key])
            found[key] = STORED[key]
        except (AssertionError, KeyError):
            print("recorded", key)
    np.savez_compressed(FILE, **found)
