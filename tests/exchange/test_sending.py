"""What may be asked of the messages; anything else is refused in one sentence."""

from __future__ import annotations

import math

import pytest

import dadmm.run
from dadmm import Topology, solve
from dadmm.core.errors import ConfigError
from dadmm.exchange.sending import EVERYTHING, Sending, check_loss
from dadmm.penalty import SCHEMES
from tests.support.problems import quadratics

WRONG = [
    ({"payload": "int8"}, "unknown payload 'int8'; choose one of float64, float32, "),
    ({"bits": 1}, "bits must be from 2 to 16, got 1"),
    ({"bits": 17}, "bits must be from 2 to 16, got 17"),
    ({"censor": -0.1}, "censor must be at least 0, got -0.1"),
    ({"censor": math.inf}, "censor must be at least 0, got inf"),
    ({"censor": math.nan}, "censor must be at least 0, got nan"),
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


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_setting_out_of_range_is_refused(settings, words):
    """With its name, what is allowed, and what came."""
    with pytest.raises(ConfigError) as error:
        Sending(**settings)

    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings", NOT_LOST)
def test_what_is_sent_as_a_difference_cannot_be_lost(settings):
    """The sentence says why, and what to leave alone."""
    Sending(**settings)
    with pytest.raises(ConfigError, match=r"^drop_probability goes with whole .*0$"):
        Sending(drop_probability=0.1, **settings)


def test_an_old_name_gets_a_sentence_with_the_new_one():
    """In the library as in a file of settings."""
    with pytest.raises(ConfigError, match=r"^every is now called send_every$"):
        Sending(every=2)


def test_losses_go_with_times_and_seeds():
    """Which change what is sent when, and not what it means."""
    Sending(drop_probability=0.3, send_every=3, drop_seed=9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_losses_go_with_one_scheme_only(scheme):
    """All others would need ends that know the same."""
    check_loss(Sending(send_every=3), scheme)
    if scheme == "fixed":
        check_loss(Sending(drop_probability=0.1), scheme)
        return
    sentence = f"^drop_probability goes with the scheme fixed only, got '{scheme}'"
    with pytest.raises(ConfigError, match=sentence):
        check_loss(Sending(drop_probability=0.1), scheme)
    with pytest.raises(ConfigError, match=sentence):
        solve(
            quadratics(2),
            Topology.ring(2),
            scheme=scheme,
            sending=Sending(drop_probability=0.1),
        )


@pytest.mark.parametrize(
    ("settings", "always"),
    [
        ({}, True),
        ({"bits": 3, "censor_decay": 0.5, "drop_seed": 4}, True),  # of nothing used
        ({"payload": "float32"}, False),
        ({"censor": 0.1}, False),
        ({"send_every": 2}, False),
        ({"edge_sleep": 0.1}, False),
        ({"drop_probability": 0.1}, False),
    ],
)
def test_only_what_is_used_counts(settings, always):
    """Settings of what is not used leave the messages whole."""
    assert Sending(**settings).always is always
    assert EVERYTHING.always


FLAGS = [
    ("--payload", "int8"),
    ("--payload", "quantised", "--bits", "17"),
    ("--bits", "many"),
    ("--censor", "-1"),
    ("--censor", "0.1", "--censor-decay", "1"),
    ("--send-every", "0"),
    ("--edge-sleep", "1"),
    ("--scheme", "fixed", "--drop-probability", "1"),
    ("--scheme", "fixed", "--drop-probability", "0.1", "--payload", "float16"),
    ("--scheme", "fixed", "--drop-probability", "0.1", "--drop-seed", "-1"),
    ("--drop-probability", "0.1"),  # the scheme is auto
    ("--schedule", "sometimes"),
    ("--topology", "ring,rign"),
    ("--topology", "ring,none.edges"),
]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_the_command_line_refuses_the_same(flags, capsys, tmp_path, monkeypatch):
    """In one line on stderr, with code 2, and it leaves nothing."""
    monkeypatch.chdir(tmp_path)
    joined = [f"{a}={b}" for a, b in zip(flags[::2], flags[1::2], strict=True)]

    try:
        code = dadmm.run.main(joined)
    except SystemExit as leaving:
        code = leaving.code

    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert said.err.startswith("dadmm: error: ")
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_was_asked_for_is_in_the_configuration(tmp_path):
    """So that a run can be repeated from its folder, bit for bit."""
    flags = "--payload quantised --bits 5 --censor 0.2 --censor-decay 0.9"
    flags += " --send-every 2 --edge-sleep 0.25 --topology ring,star --nodes 4"
    flags += " --max-iter 12 --quiet"
    flags += " --problem least_squares --record-edges"
    first, second = tmp_path / "first", tmp_path / "second"

    assert dadmm.run.main([*flags.split(), "--out", str(first)]) == 0
    again = ["--config", str(first / "config.toml"), "--out", str(second)]
    assert dadmm.run.main(again) == 0

    text = (first / "config.toml").read_text()
    for line in (
        "bits = 5",
        "send_every = 2",
        "edge_sleep = 0.25",
        'topology = "ring,star"',
    ):
        assert f"{line}\n" in text
    here, there = ((f / "edges.csv").read_text() for f in (first, second))
    assert here == there
