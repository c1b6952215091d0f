"""Settings that are written as TOML are read again."""

from __future__ import annotations

import datetime
import json
import math
import tomllib

import pytest

from launch.base import toml
from launch.base.messages import UsageError


@pytest.mark.parametrize(
    "value",
    [
        'a "b" \\ \n\t\x00\x1f\x7f',
        "\N{GREEK SMALL LETTER ETA} \N{GRINNING FACE}",
        True,
        -3,
        1e-07,
        1e22,
        math.inf,
        -math.inf,
        [1, 2.5, "x", [True]],
    ],
)
def test_a_value_is_read_as_it_was_written(value):
    """Neither Infinity nor surrogate escapes are valid TOML."""
    assert tomllib.loads(toml.dumps({"name": value})) == {"name": value}


def test_other_keys_and_tables_are_written_too():
    """A table becomes JSON, as dadmm.run reads problem_settings; a date is an error."""
    table = {"a b": 1, "": 2, "a.b": 3, "max_iter": 4}
    assert tomllib.loads(toml.dumps(table)) == table
    assert math.isnan(tomllib.loads(toml.dumps({"name": math.nan}))["name"])
    table = {"alpha": math.inf, "name": "\N{GRINNING FACE}"}
    text = tomllib.loads(toml.dumps({"problem_settings": table}))["problem_settings"]
    assert json.loads(text) == table
    with pytest.raises(UsageError, match="got 2020-01-01"):
        toml.dumps({"name": datetime.date(2020, 1, 1)})
