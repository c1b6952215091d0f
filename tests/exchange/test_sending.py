"""What may be asked of the messages; anything else is refused in one sentence."""

from __future__ import annotations

import math

import pytest

from dadmm import Topology
from dadmm.core.errors import ConfigError
from dadmm.exchange.sending import Sending
from dadmm.penalty import SCHEMES
from tests.support.problems import quadratics
from tests.support.runs import refused
from tests.support.solving import solve

WRONG = [
    ({"payload": "int8"}, "unknown payload 'int8'; choose one of float64, float32, "),
    ({"bits": 1}, "bits must be from 2 to 16, got 1"),
    ({"bits": 17}, "bits must be from 2 to 16, got 17"),
    ({"censor": -0.1}, "censor must be at least 0 and finite, got -0.1"),
    ({"censor": math.inf}, "censor must be at least 0 and finite, got inf"),
    ({"censor": math.nan}, "censor must be at least 0 and finite, got nan"),
    ({"censor_decay": 0.0}, "censor_decay must be between 0 and 1, got 0.0"),
    ({"censor_decay": 1.0}, "censor_decay must be between 0 and 1, got 1.0"),
    ({"send_every": 0}, "send_every must be at least 1, got 0"),
    ({"edge_sleep": 1.0}, "edge_sleep must be within [0, 1), got 1.0"),
    ({"edge_sleep": -0.5}, "edge_sleep must be within [0, 1), got -0.5"),
    ({"drop_probability": 1.0}, "drop_probability must be within [0, 1), got 1.0"),
    ({"drop_seed": -1}, "drop_seed must be at least 0, got -1"),
]
# together with losses
NOT_LOST = [{"payload": "float32"}, {"censor": 0.1}, {"edge_sleep": 0.1}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where nothing may be left behind."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_setting_out_of_range_is_refused(settings, words, capsys):
    with pytest.raises(ConfigError) as error:
        Sending(**settings)
    ((name, value),) = settings.items()

    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)
    assert words in refused(capsys, f"--{name.replace('_', '-')}={value}")


@pytest.mark.parametrize("settings", NOT_LOST)
def test_what_is_sent_as_a_difference_cannot_be_lost(settings):
    Sending(**settings)
    with pytest.raises(ConfigError, match=r"^drop_probability goes with whole .*0$"):
        Sending(drop_probability=0.1, **settings)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "fixed"])
def test_losses_go_with_one_scheme_only(scheme):
    sentence = f"^drop_probability goes with the scheme fixed only, got '{scheme}'"
    lossy = Sending(drop_probability=0.1)
    with pytest.raises(ConfigError, match=sentence):
        solve(quadratics(2), Topology.ring(2), scheme=scheme, sending=lossy)


FLAGS = [
    "--scheme=fixed --drop-probability=0.1 --payload=float16",
    "--drop-probability=0.1",  # the scheme is snap
    "--schedule=sometimes",
    "--topology=ring,rign",
    "--topology=ring,none.edges",
]


@pytest.mark.parametrize("flags", FLAGS)
def test_the_command_line_refuses_what_does_not_fit(flags, capsys):
    refused(capsys, *flags.split())


def test_an_integer_is_a_number():
    """The threshold of censoring decays, so it is a float."""
    runs = [solve(quadratics(5), Topology.ring(5), censor=one) for one in (1, 1.0)]

    assert runs[0].iterations == runs[1].iterations
    assert (runs[0].theta == runs[1].theta).all()
