"""The cases of the fuzz test: a kind of input and a seed decide everything.

`make_templates` writes whole files once; each case damages a copy of one of them, and
has the command line that reads it.
"""

from __future__ import annotations

import io
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.documents import toml_value
from tests.campaigns.faults.damage import (
    ENCODINGS,
    VALUES,
    WORDS,
    Rng,
    as_arrays,
    damage_archive,
    damage_bytes,
    damage_field,
    damage_file,
    damage_text,
    false_npy,
    misplace,
    pick,
)

SMALL = (
    "--nodes", "3", "--max-iter", "3", "--n-components", "1", "--quiet",
    "--no-checkpoint",
)  # fmt: skip
SYNTHETIC = ("--n-samples", "24", "--dimension", "4")
LINEAR = ("--nodes", "3", "--max-iter", "3", "--quiet", "--no-checkpoint")
PROBLEMS = (
    "ppca", "least_squares", "ridge", "lasso", "elastic_net", "logistic", "multinomial",
    "poisson", "huber", "sfm",
)  # fmt: skip
NETWORK = {
    "hosts": "each", "sites": "each", "egress": "100 Mbit/s",
    "links": {
        "host": {"latency": "1 us", "bandwidth": "5 GB/s"},
        "lan": {"latency": "50 us", "bandwidth": "1 Gbit/s"},
        "wan": {"latency": "20 ms", "bandwidth": "100 Mbit/s"},
    },
    "overhead": {"message": 64, "packet": 66, "payload": 1448},
    "stragglers": {"factor": 2.0, "nodes": [1], "share": 0.5, "seed": 1},
}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "problem": "ppca", "nodes": 3, "max_iter": 3, "n_components": 1, "n_samples": 24,
    "dimension": 4, "topology": "ring", "scheme": "snap", "tolerance": 1e-3,
    "seed": 1, "quiet": True, "checkpoint": False, "out": "out", "record_edges": True,
    "payload": "float64", "noise_variance": 0.2, "problem_settings": "{}",
}  # fmt: skip
GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="w" attr.type="double"/>
<graph edgedefault="undirected">
<node id="0"><data key="d0">1.5</data></node><node id="1"/><node id="2"/>
<edge source="0" target="1"/><edge source="1" target="2"/>
<edge source="2" target="0"/>
</graph></graphml>
"""
BOMBS = (
    '<!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;">'
    '<!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;"><!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;">]>',
    '<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE g [<!ENTITY a SYSTEM "/dev/zero">]>',
    '<!DOCTYPE g [<!ENTITY % a SYSTEM "../outside/kept.txt"> %a;]>',
    '<!DOCTYPE g SYSTEM "../outside/kept.txt">',
    '<!DOCTYPE g [<!ATTLIST node id CDATA "0">]>',
)


class Case(NamedTuple):
    """A command, with the files that it finds in its folder."""

    command: str  # module of dadmm
    argv: list[str]


class Box:
    """The folder of a case, in which it writes its input."""

    def __init__(self, folder: Path, templates: Path, rng: Rng) -> None:
        self.folder, self.templates, self.rng = folder, templates, rng

    def template(self, name: str) -> bytes:
        return (self.templates / name).read_bytes()

    def put(self, name: str, data: bytes | str) -> str:
        """Write a file; a few are replaced by a folder, a pipe, a link or a device."""
        path = self.folder / name
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        self.misplace(path)
        return name

    def misplace(self, path: Path, share: float = 0.06) -> None:
        if self.rng.random() < share:
            misplace(self.rng, path, self.folder.parent / "outside")

    def copy(self, name: str) -> Path:
        shutil.copytree(self.templates / name, self.folder / name, symlinks=True)
        return self.folder / name

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, options: Any) -> Any:
        return pick(self.rng, options)


def _toml(table: dict[str, Any]) -> str:
    """Return a table as TOML; values that TOML lacks are written all the same."""
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    inner = {k: v for k, v in table.items() if isinstance(v, dict)}

    def key(name: str) -> str:
        return name if name.isidentifier() else json.dumps(name)

    def value(x: Any) -> str:
        try:
            return toml_value(x)
        except RecursionError:
            return "[" * 500 + "]" * 500
        except (ValueError, TypeError):
            return json.dumps(str(x))

    text = "".join(f"{key(k)} = {value(v)}\n" for k, v in plain.items())
    for name, own in inner.items():
        deep = {k: v for k, v in own.items() if isinstance(v, dict)}
        flat = {k: v for k, v in own.items() if not isinstance(v, dict)}
        text += f"[{key(name)}]\n{_toml(flat)}"
        for k, v in deep.items():
            text += f"[{key(name)}.{key(k)}]\n{_toml(v)}"
    return text


def _damaged_toml(box: Box, table: dict[str, Any]) -> bytes:
    rng = box.rng
    if box.chance(0.02):
        return f"seed = {'[' * int(box.pick((100, 10**5)))}".encode()
    if box.chance(0.02):
        return f"{'a.' * int(box.pick((90, 10**4)))}b = 1".encode()
    if box.chance(0.5):
        found = damage_field(rng, table)
        text = _toml(found) if isinstance(found, dict) else str(found)
        return text.encode("utf-8", "surrogatepass")
    return damage_file(rng, _toml(table).encode(), text=True)


def config(box: Box) -> Case:
    table = SETTINGS
    if box.chance(0.3):
        names = _settings()
        table = table | {box.pick(names): box.pick(VALUES) for _ in range(2)}
        table = {name: value for name, value in table.items() if value is not None}
    file = box.put("my.toml", _damaged_toml(box, table))
    more = ["--dry-run"] if box.chance(0.1) else []
    limits = ["--max-iter", "3", "--out", "out"]
    return Case("run", ["--config", file, *limits, *more])


def _settings() -> list[str]:
    from dataclasses import fields

    from dadmm.runs.settings import Settings

    return [item.name for item in fields(Settings)]


def flags(box: Box) -> Case:
    """Draw flags of all commands with values of all sorts."""
    words: list[str] = []
    for _ in range(int(box.rng.integers(1, 4))):
        name = box.pick(_settings()).replace("_", "-")
        value = str(box.pick((*WORDS, *VALUES)))
        forms = ([f"--{name}", value], [f"--{name}"], [f"--no-{name}"], [value])
        words += [f"--{name}={value}"] if box.chance(0.7) else box.pick(forms)
    if box.chance(0.1):
        name = box.pick(("--resume", "--config", "--trust", "--dry-run"))
        words += [name, str(box.pick(WORDS))]
    words = [word for word in words if "\0" not in word]  # which no argument can have
    command = box.pick(("run", "run", "run", "predict", "plot", "replay", "waiting"))
    if command == "run":
        limits = ["--max-iter", "3", "--out", "out"]
        words = [*SMALL, *SYNTHETIC, *words, *limits]
    else:
        box.copy("model")
        box.put("new.csv", box.template("table.csv"))
        argv = {
            "predict": ["model", "new.csv", "--out", "p.csv"],
            "plot": ["model", "--kind", "convergence", "--format", "svg"],
            "replay": ["model", "--network", "wan"],
        }
        options = (
            "--unknown", "--on-missing", "--separator", "--decimal", "--encoding",
            "--kind", "--at", "--format", "--way", "--network", "--force",
        )  # fmt: skip
        value = str(box.pick(WORDS)).replace("\0", "?")
        own = {"predict": options[:5], "plot": options[5:8], "replay": ("--network",)}
        name = box.pick(own.get(command, ("--way",)) if box.chance(0.8) else options)
        words = [*argv.get(command, ["model"]), f"{name}={value}"]
    if box.chance(0.2):  # a path
        at = box.pick([k for k in range(len(words)) if words[k - 1] != "--out"])
        words[at] = str(box.pick(WORDS)).replace("\0", "?")
    return Case(command, words)


# data


def _run_on(box: Box, file: str, target: str | None = None) -> Case:
    """Return a run on a data file, with some of the settings of tables."""
    problem = box.pick(PROBLEMS[:-1] if box.chance(0.95) else PROBLEMS)
    words = [*(SMALL if problem in ("ppca", "sfm") else LINEAR), "--problem", problem]
    words += ["--data", file, "--out", "out"]
    some: dict[str, tuple[str, ...]] = {
        "--target": ("y", "label", "0", "-1", "x0", "nothing", "99"),
        "--features": ("a,b", "0,1", "b", "kind", ",", "a,a", "-1"),
        "--categories": ("kind", "a", "0"),
        "--weight": ("w", "a", "0"),
        "--on-missing": ("error", "drop", "mean"),
        "--max-categories": ("2", "9"),
        "--labels": ("0", "a", "kind"),
    }
    if problem not in ("ppca", "sfm") and target is not None:
        words += ["--target", target]
    for name, values in some.items():
        if box.chance(0.04):
            words += [name, box.pick(values)]
    if box.chance(0.2):
        words += ["--standardise"]
    return Case("run", words)


def _text_options(box: Box) -> list[str]:
    words = []
    if box.chance(0.15):
        words += ["--encoding", box.pick((*ENCODINGS, "utf-8", "rot13", "hex", "idna"))]
    if box.chance(0.1):
        words += ["--separator", box.pick((",", ";", "\t", "|", '"', " ", "a", "\n"))]
    if box.chance(0.1):
        words += ["--decimal", box.pick((",", "."))]
    return words


def csv(box: Box) -> Case:
    text = box.template("table.csv")
    if box.chance(0.3):
        text = text.replace(b",", box.pick((b";", b"\t", b"|", b" ", b'","')))
    if box.chance(0.1):
        text = text.decode().encode(box.pick(ENCODINGS))
    file = box.put("data.csv", damage_file(box.rng, text, text=True))
    case = _run_on(box, file, box.pick(("y", "label", "a")))
    return Case("run", [*case.argv, *_text_options(box)])


def txt(box: Box) -> Case:
    file = box.put("data.txt", damage_file(box.rng, box.template("data.txt"), True))
    case = _run_on(box, file)
    return Case("run", [*case.argv, *_text_options(box)])


def npy(box: Box) -> Case:
    data = false_npy(box.rng)
    if box.chance(0.4):
        data = damage_bytes(box.rng, box.template("data.npy"))
    return _run_on(box, box.put("data.npy", data))


def npz(box: Box) -> Case:
    damage = damage_archive if box.chance(0.6) else damage_bytes
    file = box.put("data.npz", damage(box.rng, box.template("data.npz")))
    key = box.pick(("::X", "::X", "::y", "::", "::../X", "::feature_names"))
    return _run_on(box, file + (key if box.chance(0.4) else ""))


def sparse(box: Box) -> Case:
    data = box.template("sparse.npz")

    def change(arrays: dict[str, Any]) -> None:
        name = box.pick([*arrays])
        strange = (
            np.array([-1]), np.array([10**15, 10**15]), np.array([[1]]), np.array("x"),
            np.array(b"csc"), np.array(b"dia"), np.array(b"__class__"), np.array(True),
            np.array([2**31]), np.array([], dtype=int), np.array([1 + 2j]),
            np.array([np.nan]),
            arrays[name][..., ::-1] if arrays[name].ndim else np.array(b"bsr"),
            arrays[name].astype(str), np.array([24, 4.0]), np.array([24, 10**9]),
        )  # fmt: skip
        arrays[name] = box.pick(strange)

    if box.chance(0.6):
        data = as_arrays(change, data)
    else:
        data = (damage_archive if box.chance(0.5) else damage_bytes)(box.rng, data)
    return _run_on(box, box.put("sparse.npz", data))


def mat(box: Box) -> Case:
    data = box.template(box.pick(("data.mat", "data4.mat")))
    if box.chance(0.5):  # sizes and types in the tags
        changed = bytearray(data)
        place = 128 if data[:6] == b"MATLAB" else 0
        at = place + 4 * int(box.rng.integers(0, 24))
        changed[at : at + 4] = box.pick(
            (b"\xff" * 4, b"\0" * 4, b"\0\0\0\x7f", b"\x0e\0\0\0", b"\x0f\0\0\0")
        )
        data = bytes(changed)
    else:
        data = damage_bytes(box.rng, data)
    return _run_on(box, box.put("data.mat", data) + box.pick(("", "", "::X", "::c")))


def parquet(box: Box) -> Case:
    data = box.template(box.pick(("data.parquet", "odd.parquet")))
    if box.chance(0.5):  # the footer: its bytes, its length
        changed = bytearray(data)
        size = int.from_bytes(data[-8:-4], "little")
        if box.chance(0.3):
            changed[-8:-4] = box.pick((b"\xff" * 4, b"\0" * 4, b"\0\0\0\x7f"))
        else:
            for _ in range(int(box.rng.integers(1, 5))):
                at = len(data) - 8 - int(box.rng.integers(1, size))
                changed[at] = int(box.rng.integers(256))
        data = bytes(changed)
    else:
        data = damage_bytes(box.rng, data)
    return _run_on(box, box.put("data.parquet", data), box.pick(("y", "label", "a")))


def labels(box: Box) -> Case:
    """Draw a file with the node of each row."""
    box.put("data.npy", box.template("data.npy"))
    end = box.pick((".npy", ".txt", ".csv", ".npz", ".mat", ".parquet", ".json"))
    numbers = np.arange(24) % 3
    if end == ".npy":
        buffer = io.BytesIO()
        strange = (numbers - 1, numbers * 10**12, numbers * np.nan, numbers * 1.5)
        np.save(buffer, box.pick((*strange, numbers[:-1], numbers[None])))
        data = false_npy(box.rng) if box.chance(0.4) else buffer.getvalue()
    else:
        data = damage_file(box.rng, "\n".join(map(str, numbers)).encode(), True)
    file = box.put(f"labels{end}", data)
    words = [*SMALL, "--data", "data.npy", "--labels", file, "--out", "out"]
    return Case("run", words)


# graphs


def _run_over(box: Box, file: str) -> Case:
    words = [*SMALL, *SYNTHETIC, "--out", "out", "--topology", file]
    if box.chance(0.2):
        words += ["--schedule", "matchings"]
    return Case("run", words)


def edges(box: Box) -> Case:
    text = "# a ring\n0 1\n1 2\n2 0\n"
    if box.chance(0.2):
        big = box.pick(("99999999999", "9" * 4999, "9" * 30, "2147483648", "\u0661"))
        text = text.replace(box.pick(("0", "1", "2")), big)
    else:
        text = damage_file(box.rng, text.encode(), True)
    end = box.pick((".edges", ".edgelist", ".txt", ".gml", ""))
    return _run_over(box, box.put(f"ring{end}", text))


def graphml(box: Box) -> Case:
    text = GRAPHML
    match int(box.rng.integers(6)):
        case 0:
            head, rest = text.split("\n", 1)
            text = f"{head}\n{box.pick(BOMBS)}\n{rest}"
            text = text.replace("1.5", box.pick(("&f;", "&a;", "1")))
            if box.chance(0.3):
                text = text.replace("UTF-8", "UTF-16")
                return _run_over(box, box.put("ring.graphml", text.encode("utf-16")))
        case 1:
            text = text.replace('id="0"', f'id="{"0" * 10**6}"')
        case 2:
            text = text.replace(
                box.pick(("0", "1", "double", "undirected", "node", "edge", "id")),
                box.pick(("directed", "int", "x", "-1", "1e400", "boolean", "", "<a>")),
            )
        case 3:
            deep = int(box.pick((10, 2000, 100_000)))
            text = text.replace("<node", "<a>" * deep + "<node", 1)
            text = text.replace("</graph>", "</a>" * deep + "</graph>")
        case _:
            text = damage_file(box.rng, text.encode(), True)
    return _run_over(box, box.put("ring.graphml", text))


def adjacency(box: Box) -> Case:
    data = false_npy(box.rng)
    if box.chance(0.6):
        buffer = io.BytesIO()
        ring = 1 - np.eye(3)
        strange = (
            ring * np.nan, ring * 2, ring[:2], ring * 0, ring > 0, np.triu(ring),
            ring.astype("U1"), ring.astype(complex), ring[None], np.eye(3), -ring,
            np.zeros((0, 0)), ring.astype("datetime64[s]"), np.kron(np.eye(2), ring),
        )  # fmt: skip
        np.save(buffer, box.pick(strange))
        data = buffer.getvalue()
        data = damage_bytes(box.rng, data) if box.chance(0.3) else data
    return _run_over(box, box.put("ring.npy", data))


def schedule(box: Box) -> Case:
    names = []
    for k in range(int(box.rng.integers(1, 4))):
        if box.chance(0.3):
            names.append(box.pick(("ring", "star", "", "nothing", "grid", " ring")))
            continue
        text = "0 1\n1 2\n" if box.chance(0.5) else "2 0\n"
        names.append(box.put(f"g{k}.edges", damage_file(box.rng, text.encode(), True)))
    return _run_over(box, ",".join(names))


# runs and models


def checkpoint(box: Box) -> Case:
    """Draw a run to resume: damaged checkpoints, settings, rows or manifest."""
    rng, run = box.rng, box.copy(box.pick(("run", "nap", "huber")))
    files = sorted(path for path in run.rglob("*") if path.is_file())
    newest = max((run / "checkpoints").iterdir())
    saved = [path for path in files if path.parent == newest]
    path = box.pick(saved if box.chance(0.6) else files)
    data = path.read_bytes()
    if path in saved and box.chance(0.6):  # with a correct checksum
        body = data[:-4]
        if box.chance(0.3):

            def change(arrays: dict[str, Any]) -> None:
                about = json.loads(arrays["about"].tobytes())
                about = json.dumps(damage_field(rng, about)).encode()
                arrays["about"] = np.frombuffer(about, dtype=np.uint8)

            body = as_arrays(change, body)
        elif box.chance(0.5):
            body = as_arrays(lambda arrays: _change_array(box, arrays), body)
        else:
            body = (damage_archive if box.chance(0.5) else damage_bytes)(rng, body)
        data = body + zlib.crc32(body).to_bytes(4, "little")
    else:
        data = damage_file(rng, data, path.suffix in (".toml", ".csv", ".json", ""))
    if box.chance(0.05):
        path.unlink()
    else:
        path.write_bytes(data)
        box.misplace(path)
    if box.chance(0.1):
        _link_out(box, run, ("checkpoints", "parts"))
    words = ["--resume", run.name, "--max-iter", "8", "--quiet"]
    if box.chance(0.15):  # also for the removal of results
        words = [*SMALL, *SYNTHETIC, "--out", run.name, "--overwrite"]
        list_ = run / "manifest.json"
        if list_.is_file() and not list_.is_symlink() and path != list_:
            _name_files(box, list_)
    return Case("run", words)


def _name_files(box: Box, file: Path) -> None:
    """Let the list of a run's files name others."""
    content = json.loads(file.read_text())
    names = ("../outside/kept.txt", "../../outside/kept.txt", "parts/../../x", "/x")
    content["files"] = [*content["files"], box.pick(names), "checkpoints/"]
    file.write_text(json.dumps(content))


def _change_array(box: Box, arrays: dict[str, Any]) -> None:
    """Change one of the arrays of a state."""
    name = box.pick([key for key in arrays if key != "about"])
    found = arrays[name]
    strange = (
        found.ravel(), found[None], found[:0] if found.ndim else found[None],
        found.astype(str), found.astype(complex), found * np.float64(np.nan),
        found * 0, found.astype(np.float32), np.concatenate([found.ravel()] * 2),
        found.astype(bool), found * np.float64(1e300), np.array(-1), np.array("x"),
    ) if found.dtype.kind in "fiub" else (np.array(1), np.array([]))  # fmt: skip
    new = box.pick((*strange, None))
    if new is None:
        del arrays[name]
    else:
        arrays[name] = new


def _link_out(box: Box, run: Path, names: tuple[str, ...]) -> None:
    """Put a link to the folder outside at the place of a folder or file of a run."""
    path, outside = run / box.pick(names), box.folder.parent / "outside"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(outside if box.chance(0.5) else outside / "kept.txt")


def model(box: Box) -> Case:
    rng, name = box.rng, box.pick(("model", "lasso", "ppca"))
    data = box.template(f"{name}/model.json")
    if box.chance(0.7):
        found = damage_field(rng, json.loads(data))
        text = json.dumps(found)
        if box.chance(0.1):
            text = text.replace("0.", box.pick(("1e400", "9" * 5000, "[" * 10**5)), 1)
        data = text.encode()
    else:
        data = damage_file(rng, data, True)
    file = box.put("model.json", data)
    new = box.put("new.csv", box.template("table.csv"))
    return Case("predict", [file, new, "--out", "p.csv"])


def new_table(box: Box) -> Case:
    """Draw a table to predict; its format is any."""
    name = box.pick(("model", "lasso", "ppca"))
    box.copy(name)
    kind = box.pick(("table.csv", "table.csv", "data.parquet", "data.npy", "data.npz",
                     "data.mat", "data.txt", "sparse.npz"))  # fmt: skip
    text = kind.endswith((".csv", ".txt"))
    data = damage_file(box.rng, box.template(kind), text)
    if kind.endswith(".npz") and box.chance(0.5):
        data = damage_archive(box.rng, box.template(kind))
    if kind == "data.npy" and box.chance(0.5):
        data = false_npy(box.rng)
    file = box.put(kind, data)
    words = [name, file, "--out", "p.csv", *_text_options(box)]
    if box.chance(0.3):
        words += ["--on-missing", box.pick(("drop", "mean", "keep", "error"))]
    if box.chance(0.3):
        words += ["--unknown", box.pick(("ignore", "error"))]
    if box.chance(0.1):
        out = box.folder / "p.csv"
        misplace(box.rng, out, box.folder.parent / "outside")
        words += ["--force"] if box.chance(0.5) else []
    return Case("predict", words)


def history(box: Box) -> Case:
    """Draw the folder of a finished run, which is drawn or replayed."""
    rng, run = box.rng, box.copy("run")
    summary = json.loads((run / "summary.json").read_text())
    summary["mpi_library"] = "MPICH 5.0.2"  # of one process, nothing waits
    (run / "summary.json").write_text(json.dumps(summary))
    names = ("history.csv", "edges.csv", "summary.json", "result.npz", "config.toml")
    path = run / box.pick(names)
    data = path.read_bytes()
    if path.suffix == ".npz":
        if box.chance(0.4):
            data = as_arrays(lambda arrays: _change_array(box, arrays), data)
        else:
            data = (damage_archive if box.chance(0.5) else damage_bytes)(rng, data)
    elif path.suffix == ".json" and box.chance(0.6):
        data = json.dumps(damage_field(rng, json.loads(data))).encode()
    else:
        data = damage_file(rng, data, True)
    path.write_bytes(data)
    box.misplace(path)
    command = box.pick(("plot", "replay", "waiting"))
    if command == "plot":
        kind = box.pick(("convergence", "eta", "network", "traffic", "structure"))
        words = ["run", "--kind", kind, "--format", "svg"]
        if box.chance(0.2):
            words += ["--at", box.pick(("1", "9999", "0", "9" * 30))]
        if box.chance(0.1):
            words[0:1] = ["run", box.copy("model").name]
        if box.chance(0.1):
            _link_out(box, run, (f"{kind}.svg", f".{kind}.svg.draft"))
        return Case(command, words)
    network = ["--network", "wan"] if command == "replay" else []
    return Case(command, ["run", *network])


def network(box: Box) -> Case:
    """Draw the network of a replay."""
    box.copy("run")
    file = box.put("my.toml", _damaged_toml(box, NETWORK))
    return Case("replay", ["run", "--network", file])


def rows(box: Box) -> Case:
    """Draw measurements of messages."""
    sizes = [(name, 10**k) for name in ("lan", "host", "wan") for k in range(2, 6)]
    text = "class,bytes,seconds\n"
    text += "".join(f"{name},{size},{1e-5 + size / 1e8}\n" for name, size in sizes)
    for _ in range(int(box.rng.integers(1, 3))):
        text = damage_text(box.rng, text)
    data = text.encode("utf-8", "surrogatepass")
    if box.chance(0.3):
        data = damage_bytes(box.rng, data)
    out = ["--out", "my.toml"] if box.chance(0.5) else []
    return Case("calibrate", [box.put("rows.csv", data), *out])


KINDS: dict[str, Callable[[Box], Case]] = {
    kind.__name__: kind
    for kind in (
        config, flags, csv, txt, npy, npz, sparse, mat, parquet, labels, edges, graphml,
        adjacency, schedule, checkpoint, model, new_table, history, network, rows,
    )
}  # fmt: skip


def draw(kind: str, seed: int, folder: Path, templates: Path) -> Case:
    """Write the input of a case into a folder, and return its command."""
    rng = np.random.default_rng([seed, *kind.encode()])
    with np.errstate(all="ignore"):
        return KINDS[kind](Box(folder, templates, rng))


def make_templates(folder: Path) -> None:
    """Write the files that the cases damage."""
    import pyarrow
    from pyarrow import parquet as files
    from scipy import io as matlab
    from scipy import sparse as matrices

    from dadmm import run

    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 4)).round(3)
    y = np.round(X @ [1.0, -1.0, 0.5, 0.0], 3)
    kinds = np.array(["red", "green", "blue"])[np.arange(24) % 3]
    label = np.array(["yes", "no"])[np.arange(24) // 5 % 2]
    table = [
        f'{a},{b},"{kind}",{c},{value},{word}'
        for (a, b, c, _), kind, value, word in zip(X, kinds, y, label, strict=True)
    ]
    text = "\n".join(["a,b,kind,w,y,label", *table, ""])
    (folder / "table.csv").write_text(text)
    np.savetxt(folder / "data.txt", X, header="a b w y", comments="")
    np.save(folder / "data.npy", X)
    names = np.array(["a", "b", "c", "w"])
    np.savez(folder / "data.npz", X=X, y=y, feature_names=names)
    matrices.save_npz(folder / "sparse.npz", matrices.csr_array(X * (X > 0)))
    matlab.savemat(folder / "data.mat", {"X": X, "y": y, "c": "text"})
    matlab.savemat(folder / "data4.mat", {"X": X, "y": y}, format="4")
    columns: dict[str, Any] = dict(zip("abw", X.T, strict=False))
    columns |= {"kind": kinds, "y": y, "label": label}
    files.write_table(
        pyarrow.table(columns), folder / "data.parquet", row_group_size=10
    )
    odd = {
        "a": [[1, 2], [3]] * 12, "b": [{"x": 1}, None] * 12, "c": [b"\xff", None] * 12,
        "kind": pyarrow.array([1, None] * 12, pyarrow.duration("s")), "y": y,
    }  # fmt: skip
    files.write_table(pyarrow.table(odd), folder / "odd.parquet")
    saved = ["--record-edges", "--checkpoint-every", "2", "--tolerance", "0"]
    words = ["--nodes", "3", "--quiet", "--max-iter", "5", *SYNTHETIC, *saved]
    less = ["--payload", "quantised", "--censor", "0.01", "--agreement", "global"]
    runs = {
        "run": [*words, "--n-components", "2"],
        "nap": [*words, "--n-components", "2", "--scheme", "nap", *less],
        "huber": [*words, "--problem", "huber"],
        "ppca": [*SMALL, "--data", str(folder / "table.csv"), "--features", "a,b,w"],
    }
    fits = (("model", "logistic", "label"), ("lasso", "lasso", "y"))
    for name, problem, target in fits:
        own = [*LINEAR, "--problem", problem, "--data", str(folder / "table.csv")]
        runs[name] = [*own, "--features", "a,b,kind,w", "--target", target]
    for name, given in runs.items():
        code = run.main([*given, "--out", str(folder / name)])
        if code:
            raise SystemExit(f"the template {name} ended with {code}")
