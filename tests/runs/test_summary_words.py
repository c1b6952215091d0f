"""What a report says about the errors of coefficients."""

from __future__ import annotations

import math

import pytest

from dadmm.runs.summary import computation_error

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
    line = computation_error(values, bounds, errors, "certified")

    (number,) = [float(word) for word in line.split() if word[0].isdigit()]
    assert said in line
    sizes = errors or {name: abs(value) for name, value in values.items()}
    if "%" in line:
        for name, bound in bounds.items():
            assert bound <= number / 100 * sizes[name] * (1 + 1e-12)
    else:
        assert math.isclose(number, max(bounds.values()))
