"""What a report says about the errors of coefficients."""

from __future__ import annotations

import pytest

from dadmm.runs.summary import least_angle, worst_error

VALUES = {"u": 2.0, "v": -0.5}


@pytest.mark.parametrize(
    ("values", "bounds", "errors", "said"),
    [
        (VALUES, {"u": 1e-4, "v": 1e-4}, {"u": 0.2, "v": 0.05}, "0.2 %"),
        (VALUES, {"u": 1e-4, "v": 1e-4}, {}, "0.02 %"),
        (VALUES, {"u": 1e-14, "v": 1e-14}, {}, "0.001 %"),
        (VALUES | {"w": 0.0}, {"u": 1e-4, "w": 3e-4}, {}, "3.0e-04"),
        (VALUES, {"u": 1e-4, "v": 0.7}, {}, "7.0e-01"),
        (VALUES, {"u": 1e-4, "v": 2e-4}, {"u": 0.2, "v": None}, "2.0e-04"),
    ],
)
def test_the_error_of_the_computation_is_never_understated(
    values, bounds, errors, said
):
    assert worst_error(values, bounds, errors)[0] == said


@pytest.mark.parametrize(
    ("degrees", "said"),
    [(1e-9, "0.0001"), (0.0101, "0.011"), (2.0, "2"), (2.01, "2.1")],
)
def test_the_bound_on_an_angle_is_never_understated(degrees, said):
    assert least_angle(degrees) == said
