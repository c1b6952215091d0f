"""What a report says about errors is never too little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadmm.runs.summary import at_most, least_angle, with_bound, worst_error

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


@given(st.floats(1e-9, 90.0))
def test_the_bound_on_an_angle_is_never_understated(degrees):
    assert degrees <= float(least_angle(degrees)) <= max(1.1 * degrees + 0.1, 1e-4)


@given(st.floats(-1e20, 1e20), st.floats(1e-30, 1e20))
def test_numbers_are_rounded_up(value, bound):
    """And the bound of a rounded value contains its rounding."""
    assert bound <= float(at_most(bound)) <= 1.11 * bound
    text, most = with_bound(value, bound)
    assert abs(float(text) - value) + bound <= float(most)
