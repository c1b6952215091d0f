"""What may be asked of the messages; anything else is refused in one sentence."""

from __future__ import annotations

import pytest

from dadmm import Topology
from dadmm.comm.sending import Sending
from dadmm.core.errors import ConfigError
from dadmm.penalty import SCHEMES
from tests.support.problems import quadratics
from tests.support.runs import refused
from tests.support.solving import solve

# together with losses
NOT_LOST = [{"payload": "float32"}, {"censor": 0.1}, {"edge_sleep": 0.1}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where nothing may be left behind."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


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
