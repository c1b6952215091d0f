"""The settings of a run: defaults, files, flags, and what is said about mistakes."""

import dataclasses
import math
import re

import pytest

import dadmm
from dadmm import penalty
from dadmm.core.documents import to_toml
from dadmm.core.errors import ConfigError
from dadmm.runs import config, settings
from dadmm.runs.config import RunConfig
from tests.support.problems import quadratics
from tests.support.solving import solve

OF_TABLES = {"encoding": "latin-1", "decimal": ",", "unknown": "ignore",
             "max_categories": 7, "separator": ";", "weight": "w"}  # fmt: skip
AWKWARD = 'C:\\new\\"quoted"\t#1\n\r\x00\x1f\x7f\x80 é ☃ 𝄞 \u2028 = [x] {rank}'


def parse(*words: object) -> RunConfig:
    return RunConfig.from_argv([str(word) for word in words])[0]


def test_defaults_for_a_table_are_those_of_solve():
    defaults = {"init": None, "seed": 0, "coordinates": "auto", "bound_angle": True}
    defaults |= {"scheme": dadmm.penalty.SNAP(), "stopping": dadmm.Stopping()}
    defaults |= {"sending": dadmm.Sending(), "record": dadmm.Record()}

    found = RunConfig(data="x.npy").options
    assert found == defaults | {"comm": dadmm.Ranks()}
    for name in penalty.SCHEMES:  # budgets are those of the scheme
        assert RunConfig(scheme=name).options["scheme"] == penalty.build(name)
    assert RunConfig(summaries=False).coordinates == "raw"
    assert RunConfig(problem="sfm", n_components=3).n_components == 3  # saved results


def test_every_option_of_solve_is_a_setting_of_a_run():
    kinds = (dadmm.penalty.Scheme, dadmm.Stopping, dadmm.Sending, dadmm.Ranks)
    fields = {item.name for kind in kinds for item in dataclasses.fields(kind)}

    assert settings.names("solver") == fields - {"comm", "rule"} | {
        "scheme", "stopping", "init", "seed", "coordinates", "bound_angle"
    }  # fmt: skip


def test_what_a_resumed_run_may_change_does_not_decide_its_result():
    """Aside from when it ends, and from what is compared by its content."""
    compared = {"data", "labels"}
    ends = {"max_iter", "max_seconds", "on_failure"}

    assert config.FREE - settings.names("decides") == config.FREE - compared - ends


@pytest.mark.parametrize(
    "scheme", [{"scheme": "vp_ap", "t_max": 0}, {"budget_trigger": math.inf}]
)
def test_toml_gives_back_the_same_settings(scheme, tmp_path):
    config = RunConfig(
        data=AWKWARD, nodes=7, eta0=1e-300, tolerance=0.1 + 0.2, max_seconds=2.5,
        strict=True, out="there", **{"scheme": "nap", **scheme},
    )  # fmt: skip
    file = tmp_path / "run.toml"
    file.write_text(to_toml(config.applied()), "utf-8")

    assert parse("--config", file) == config
    assert "labels" not in config.applied()


OTHER = {
    "eta0": 3.0, "t_max": 3, "residual_ratio": 1.5, "budget0": 0.1,
    "budget_decay": 0.9, "budget_trigger": 0.01,
}  # fmt: skip


@pytest.mark.parametrize("scheme", penalty.SCHEMES)
def test_a_scheme_looks_at_no_setting_but_those_it_names(scheme):
    unused = {k: v for k, v in OTHER.items() if k not in penalty.SCHEMES[scheme].uses}
    found = [
        solve(
            quadratics(4), dadmm.Topology.chain(4), scheme=scheme, max_iter=30,
            record_edges=True, **settings,
        )
        for settings in ({}, unused)
    ]  # fmt: skip

    assert (found[0].theta == found[1].theta).all()
    assert (found[0].history.edges.rows == found[1].history.edges.rows).all()


def test_flags_override_the_file(tmp_path, monkeypatch):
    """A whole number is a number there; what is in neither has its default.

    Flags override a preset, too, and so does a file of its name.
    """
    file = tmp_path / "run.toml"
    text = 'scheme = "vp"\neta0 = 3\nquiet = true\nstrict = true\nbudget0 = 2\n'
    file.write_text(text + "budget_trigger = inf\n")
    config = parse("--eta0", 4, "--config", file, "--no-strict")

    assert (config.scheme, config.eta0, config.quiet) == ("vp", 4.0, True)
    assert not config.strict
    assert isinstance(config.budget0, float)
    assert config.budget_trigger == math.inf
    assert config.t_max == RunConfig().t_max
    config = parse("--scheme", "vp", "--config", "as-printed")
    assert (config.scheme, config.coupling) == ("vp", "own")
    monkeypatch.chdir(tmp_path)
    file.rename("as-printed")
    assert parse("--config", "as-printed").coupling == "symmetric"


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_setting_of_tables_is_refused_without_a_table(name):
    """Its default is not, as it may be repeated by a file of settings."""
    for given in ({}, {"problem": "sfm", "data": "tracks.npy"}):
        assert RunConfig(
            **given, **{name: RunConfig.__dataclass_fields__[name].default}
        )
        with pytest.raises(ConfigError, match=name):
            RunConfig(**given, **{name: OF_TABLES[name]})


MISTAKES = {  # in a file, and what is named
    "eta0 = ": "TOML", 'data = "\xe9.npy"': "TOML", "etaO = 1": "eta0?",
    "max-iter = 1": "max_iter?", "[solver]\neta0 = 1": "'solver'", "data = 1": "data",
    "max_iter = 1.5": "max_iter", "max_iter = true": "max_iter", "strict = 1": "strict",
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_files_are_named(text, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(text, "latin-1")
    with pytest.raises(ConfigError) as caught:
        parse("--config", file)

    said = str(caught.value)
    assert said.startswith(str(file))
    assert MISTAKES[text] in said
    assert "\n" not in said


REFUSED = {  # values out of range, by setting
    "scheme": ["vpp"], "problem": ["pca"], "coupling": ["both"], "probe": ["far"],
    "init": ["same"], "stopping": ["never"], "agreement": ["all"], "wait": ["spin"],
    "coordinates": ["full"], "eta0": [0.0, -1.0, math.nan, math.inf], "t_max": [-1],
    "residual_ratio": [1.0, math.nan], "budget0": [-1.0, math.nan],
    "budget_decay": [1.0, -0.1, math.nan], "budget_trigger": [-0.1, math.nan],
    "relaxation": [0.0, 2.0, -1.0, math.nan], "tolerance": [-1.0, math.nan],
    "absolute_tolerance": [-1.0], "max_iter": [0],
    "max_seconds": [0.0, math.nan], "nodes": [0], "n_samples": [0],
    "n_components": [-1], "dimension": [1], "noise_variance": [-0.1, math.inf],
    "missing_fraction": [1.0], "max_categories": [1], "checkpoint_every": [-1],
    "checkpoint_seconds": [-1.0, math.inf], "seed": [-1], "data_seed": [-1],
    "topology_seed": [-1], "payload": ["int8", "quantised:1", "quantised:17", "topk:0"],
    "censor": [-0.1, math.inf, math.nan], "censor_decay": [0.0, 1.0],
    "send_every": [0], "edge_sleep": [1.0, -0.5], "drop_probability": [1.0],
    "drop_seed": [-1],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_out_of_range_is_named(name):
    """From a flag as from a keyword, and by `dadmm.solve` as by a run."""
    ways = [lambda value: RunConfig(**{name: value})]
    ways += [lambda value: parse(f"--{name.replace('_', '-')}={value}")]
    if name in settings.names("solver"):
        two = quadratics(2), dadmm.Topology.ring(2)
        ways += [lambda value: solve(*two, **{name: value})]
    for value in REFUSED[name]:
        named = re.escape(name) + r"\b[^\n]*" + re.escape(repr(value))
        for way in ways:
            with pytest.raises(ConfigError, match=named):
                way(value)
