"""Absurd values and files: one sentence that names the culprit, code 2, no hang."""

import os
import signal
from pathlib import Path

import pytest

from dadmm.__main__ import main as dadmm_command
from dadmm.__main__ import main_of
from dadmm.core import files, ranks
from tests.support.runs import refused

SMALL = ["--nodes", "4", "--n-samples", "40", "--dimension", "4", "--n-components", "2"]
SMALL += ["--max-iter", "5", "--quiet", "--no-checkpoint", "--out", "out"]
IGNORE, DEFAULT = signal.SIG_IGN, signal.SIG_DFL
BIG, DIGITS = "99999999999999999999", "9" * 5000


VALUES = {  # a flag, and what is named
    f"--nodes={BIG}": "nodes", "--nodes=1000001": "1000001",
    "--nodes=10000": "10000 nodes", f"--max-iter={DIGITS}": "--max-iter",
    f"--seed={BIG}": "seed", "--n-samples=900000000": "GiB",
    "--checkpoint-seconds=nan": "--checkpoint-seconds",
    '--problem-settings={"n_components": "x"}': "--n-components",
    '--problem-settings={"zero_mean": "no"}': "--zero-mean",
    f'--problem-settings={{"n_components": 1{"0" * 5000}}}': "--problem-settings",
    f"--problem-settings={'[' * 10**5}": "--problem-settings",
}  # fmt: skip


@pytest.mark.parametrize("flag", VALUES, ids=range(len(VALUES)))
def test_values_are_refused(flag, capfd):
    line = refused(capfd, *SMALL, flag)
    assert VALUES[flag] in line
    assert len(line) < 400


KINDS = {  # what is said of a file that is none
    "a folder": Path.mkdir,
    "a named pipe": os.mkfifo,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "": lambda file: file.write_bytes(b"\0" * 999),
}
FLAGS = {".npy": "--data", ".txt": "--data", ".toml": "--config"}


def test_a_run_opens_plain_files_only():
    for kind in ("a folder", "a named pipe", "a device"):
        file = Path(kind)
        KINDS[kind](file)
        with pytest.raises(OSError, match=r"folder|named pipe|link"):
            files.open_plain(file)


@pytest.mark.parametrize("suffix", [*FLAGS, ".edges", ".graphml"])
def test_a_file_that_is_none_is_named(suffix, capfd):
    for number, (kind, make) in enumerate(KINDS.items()):
        file = Path(f"x{number}{suffix}")
        make(file)
        line = refused(capfd, *SMALL, FLAGS.get(suffix, "--topology"), file)
        assert file.name in line
        assert kind in line


XML = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaaa"><!ENTITY b "&a;&a;&a;">]>'
XML += '<graphml><graph><node id="&b;"/></graph></graphml>'
TEXTS = {  # files that are valid text, and absurd
    "x.edges": f"0 {BIG}\n",
    "x.txt": "\n".join(f"{i} {i + 1}" for i in range(11_000)),
    "infinite.toml": "eta0 = 1" + "0" * 400 + "\n",
    "digits.toml": f"eta0 = {DIGITS}\n",
    "deep.toml": "a = " + "[" * 10**5,
    "parts.toml": "a." * 10**5 + "b = 1\n",
    "quoted.toml": "a.'b' . \"c\"." * 10**4 + "d = 1\n",
    "large.toml": "#" * 2**25,
}
TEXTS |= {f"{code}.graphml": XML for code in ("utf-8", "utf-16", "utf-16-be")}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_too_much_is_named(name, capfd):
    """GraphML declares no entities, in any encoding."""
    code = Path(name).stem if name.endswith("graphml") else "utf-8"
    Path(name).write_text(TEXTS[name], code)
    flag = "--config" if name.endswith("toml") else "--topology"
    line = refused(capfd, *SMALL, flag, name)
    assert (name if name != "infinite.toml" else "eta0") in line
    assert code not in TEXTS or "<!ENTITY" in line
    if flag == "--config":
        assert name in refused(capfd, ".", "--network", name, main=main_of("replay"))


@pytest.mark.parametrize(
    "where", ["dadmm.__main__.import_module", "dadmm.show.plot.main"]
)
def test_an_interrupt_has_no_traceback(where, monkeypatch, capfd):
    """Of a command, also while its modules are imported."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "dadmm.run"])
    for before, after in ((IGNORE, IGNORE), (signal.default_int_handler, DEFAULT)):
        signal.signal(signal.SIGINT, before)
        ranks.begin()  # before numpy is imported
        assert signal.getsignal(signal.SIGINT) == after
    monkeypatch.setattr(where, interrupt)
    assert dadmm_command(["plot", "runs/a"]) == 130
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", ["plot", "predict", "replay", "run", "waiting"])
@pytest.mark.parametrize("name", ["a" * 9000, "a\nb", "\x1b[2J", "\ud800"])
def test_a_name_that_no_file_has_gets_one_line(name, command, capfd):
    words = {"replay": [".", "--network", name], "run": ["--config", name]}
    words["predict"] = [name, name, "--out", "out.csv"]
    line = refused(capfd, *words.get(command, [name]), main=main_of(command))
    assert len(line) < 1100
    assert line.strip().isprintable() or name == "\ud800"
