"""Values as TOML text."""

import math
import tomllib

import pytest

from dadmm.core.documents import toml_value
from dadmm.core.errors import ConfigError

VALUES = [
    True, 0, -3, 1e-300, math.inf, -math.inf, math.nan, (1, 2), (), ["a", 'b"\\'],
    "\x7f\x00\n\t\u2028", "\N{GRINNING FACE} \xe4",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_back(value):
    found = tomllib.loads(f"x = {toml_value(value)}\n")["x"]

    assert repr(found) == repr(list(value) if isinstance(value, tuple) else value)


def test_undecodable_bytes_are_refused():
    with pytest.raises(ConfigError, match="is not valid Unicode"):
        toml_value("data-\udcff.npy")
