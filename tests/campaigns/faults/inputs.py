"""Bad inputs: a kind and a seed decide a damaged file and the command that reads it.

`make_templates` writes whole files once. Each case has a copy of them, one of which is
damaged; how depends on its suffix only, so that a new kind is a line of `KINDS`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator

# texts in place of a number or a word
WORDS = (
    "nan", "-inf", "1e400", "-1e308", "1e-320", "-1", "0", "1.5", "9" * 30, "9" * 5000,
    "0x10", "1_000", "", " ", "null", "true", "[]", "{}", "''", '"', "\0", "\r", "\n",
    "\ufeff", "é", "\u2028", "\u0663", "\ud800", "a" * 9000, "..", "[" * 10**5,
    "../outside/kept.txt", "../../outside/kept.txt", "/dev/zero", "/", "%s%n", "{rank}",
    "{0}", "::X", ",", ";", "#", "x0", "label", "-", "--", "=", "\\", "\\u0000", "1,2",
    "&f;", "-0",
)  # fmt: skip
VALUES = (  # of JSON
    "null", "true", "2", "1e308", "Infinity", "NaN", str(10**30), str(2**63), '""',
    '"x"', '"../outside/kept.txt"', '"\\u0000"', '"\\ud800"', "[]", "{}", "[[]]",
    '[1, "x"]', '{"x": 1}', "[null]", '["x", "x"]',
)  # fmt: skip
SHAPES = (  # and types and orders of a false .npy
    "(10**12, 4)", "(1000000000000, 4)", "(-1, 4)", "(24, 4, 1)", "()", "(0, 4)",
    "(9223372036854775807, 9223372036854775807)", "(24,)", f"({'9' * 4000},)",
    "(24.0, 4)", "('24', 4)", "(True, 4)", "24", "(24, 4)", f"({'1,' * 70})",
)  # fmt: skip
DTYPES = (
    "'<f8'", "'<f8'", "'|O'", "'<U9'", "'>i2'", "'<c16'", "'|V8'", "'<M8'", "None",
    "[('a', '<f8'), ('b', '<i4')]", "'|b1'", "'<g'", "'nonsense'", "1", "'|S0'",
    "'<U400000000'", "__import__('os').mkdir('../outside/made')",
)  # fmt: skip
ORDERS = ("False", "True", "2", "None")
ENCODINGS = ("utf-16", "utf-32", "latin-1", "utf-8-sig", "cp037", "utf-7", "ascii")
TEXTS = (".csv", ".txt", ".toml", ".json", ".edges", ".graphml", "")

LINEAR = "--nodes 3 --max-iter 3 --quiet --no-checkpoint --out out"
SMALL = f"{LINEAR} --n-components 1"
PPCA = f"run {SMALL} --data FILE"
FIT = f"run {LINEAR} --data FILE --problem PROBLEM"
GRAPH = f"run {SMALL} --n-samples 24 --dimension 4 --topology"
PROBLEMS = (
    "least_squares", "ridge", "lasso", "elastic_net", "logistic", "multinomial",
    "poisson", "huber", "sfm",
)  # fmt: skip
PICTURES = ("convergence", "eta", "network", "traffic", "structure")
PREDICT = [f"predict {name} FILE --out p.csv" for name in ("model", "lasso", "ppca")]
RESUME = "run --resume FOLDER --max-iter 8 --quiet"
# which files may be damaged, and the commands that read them
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "flags": ((), ()),  # a command of another kind with more flags
    "config": (("my.toml",), ("run --config FILE --max-iter 3 --out out",)),
    "csv": (
        ("table.csv",),
        (f"{PPCA} --features a,b,w", f"{FIT} --target y", f"{FIT} --target label"),
    ),
    "txt": (("data.txt",), (PPCA, f"{FIT} --target y")),
    "npy": (("data.npy",), (PPCA, FIT)),
    "npz": (("data.npz",), (PPCA, FIT, f"{PPCA}::X", f"{PPCA}::../X")),
    "sparse": (("sparse.npz",), (PPCA, FIT)),
    "mat": (("*.mat",), (PPCA, FIT, f"{PPCA}::X", f"{PPCA}::c")),
    "parquet": (("*.parquet",), (f"{PPCA} --features a,b,w", f"{FIT} --target y")),
    "labels": (("labels.*",), (f"run {SMALL} --data data.npy --labels FILE",)),
    "edges": (("ring.edges",), (f"{GRAPH} FILE", f"{GRAPH} FILE --schedule matchings")),
    "graphml": (("*.graphml",), (f"{GRAPH} FILE",)),
    "adjacency": (("ring.npy",), (f"{GRAPH} FILE",)),
    "schedule": (("*.edges",), (f"{GRAPH} FILE,ring", f"{GRAPH} star,FILE,FILE")),
    "checkpoint": (
        ("*/checkpoints/*/*", "*/checkpoints/*/*", "run/*", "nap/*", "huber/*"),
        (RESUME, RESUME, RESUME, f"run {SMALL} --out FOLDER --overwrite"),
    ),
    "model": (("*/model.json",), ("predict FILE table.csv --out p.csv",)),
    "new_table": (("table.csv", "data*", "sparse.npz"), (*PREDICT,)),
    "history": (
        ("run/*.csv", "run/summary.json", "run/result.npz", "run/config.toml"),
        (
            "replay run --network wan", "waiting run", "plot run ppca", "report run",
            "report run ppca",
            *(f"plot run --kind {kind} --format svg" for kind in PICTURES),
        ),
    ),
    "summary": (
        ("run/summary.json", "ppca/summary.json"),
        (
            "report run ppca", "plot ppca run", "waiting run",
            "replay run --network wan", "predict ppca table.csv --out p.csv",
            "launch diagnose run log", "run --resume run --quiet",
            "sweep .",
        ),
    ),
    "going": (
        ("going/parts/*", "going/*", "going/checkpoints/*/*"),
        (
            "report going", "plot going", "replay going --network wan", "waiting going",
            "launch diagnose going log", "run --resume going --max-iter 8 --quiet",
        ),
    ),
    "launch": (
        ("tasks/0.toml", "grid.toml", "log", "going/ranks.csv", "going/config.toml"),
        (
            "launch diagnose going log", "sweep .",
            "sweep grid.toml --out new --dry-run",
        ),
    ),
    "network": (("network.toml",), ("replay run --network FILE",)),
    "rows": (("rows.csv",), ("calibrate FILE", "calibrate FILE --out found.toml")),
}  # fmt: skip
# options that may be added to the commands of tables
OPTIONS: dict[str, tuple[str, ...]] = {
    "--target": ("y", "label", "0", "-1", "x0", "99"),
    "--features": ("a,b", "0,1", "kind", ",", "a,a", "-1"),
    "--categories": ("kind", "a", "0"),
    "--weight": ("w", "a", "0"),
    "--on-missing": ("error", "drop", "mean", "keep"),
    "--max-categories": ("2", "9"),
    "--labels": ("0", "a", "kind"),
    "--encoding": (*ENCODINGS, "rot13", "hex", "idna"),
    "--separator": (",", ";", "\t", "|", '"', " ", "a", "\n"),
    "--decimal": (",", "."),
}
TABLES = ("csv", "txt", "npy", "npz", "sparse", "mat", "parquet", "new_table")

TRACE = "Traceback (most recent call last):"
GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
{}<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="w" attr.type="double"/>
<graph edgedefault="undirected">
<node id="0"><data key="d0">{}</data></node><node id="1"/><node id="2"/>
<edge source="0" target="1"/><edge source="1" target="2"/><edge source="2" target="0"/>
</graph></graphml>
"""
ENTITIES = "".join(
    f'<!ENTITY {name} "{f"&{inner};" * 8}">'
    for inner, name in zip("abcde", "bcdef", strict=True)
)
BOMBS = (
    f'<!DOCTYPE g [<!ENTITY a "aaaaaaaaaa">{ENTITIES}]>',
    '<!DOCTYPE g [<!ENTITY f SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE g [<!ENTITY f SYSTEM "/dev/zero">]>',
    '<!DOCTYPE g [<!ENTITY % f SYSTEM "../outside/kept.txt"> %f;]>',
    '<!DOCTYPE g SYSTEM "../outside/kept.txt">',
)
CONFIG = """problem = "ppca"
nodes = 3
max_iter = 3
n_components = 1
n_samples = 24
dimension = 4
topology = "ring"
scheme = "snap"
tolerance = 1e-3
quiet = true
checkpoint = false
out = "out"
payload = "float64"
problem_settings = "{}"
"""
NETWORK = """hosts = "each"
egress = "100 Mbit/s"
[links]
host = {latency = "1 us", bandwidth = "5 GB/s"}
lan = {latency = "50 us", bandwidth = "1 Gbit/s"}
[overhead]
message = 64
packet = 66
payload = 1448
[stragglers]
factor = 2.0
nodes = [1]
share = 0.5
"""


def draw(kind: str, seed: int, folder: Path, templates: Path) -> tuple[str, list[str]]:
    """Write the input of a case into a folder; return its command and arguments."""
    rng = np.random.default_rng([seed, *kind.encode()])
    shutil.copytree(templates, folder, dirs_exist_ok=True)
    patterns, lines = KINDS[pick(rng, [*KINDS][1:]) if kind == "flags" else kind]
    matching = folder.glob(pick(rng, patterns))
    file = pick(rng, sorted(path for path in matching if path.is_file()))
    name, line = str(file.relative_to(folder)), pick(rng, lines)
    line = line.replace("FILE", name).replace("FOLDER", name.split("/")[0])
    command, *words = line.replace("PROBLEM", pick(rng, PROBLEMS)).split()
    if kind == "flags":
        return command, [*words, *false_flags(rng)]
    for option in OPTIONS if kind in TABLES else ():
        if rng.random() < 0.05:
            words += [option, pick(rng, OPTIONS[option])]
    with np.errstate(all="ignore"):
        file.write_bytes(damage(rng, file, file.read_bytes()))
    if rng.random() < 0.06:
        inner = file.parent != folder and rng.random() < 0.3
        misplace(rng, file.parent if inner else file, folder.parent / "outside")
    return command, words


def false_flags(rng: Rng) -> list[str]:
    """Return one to three flags with values of all sorts."""
    from dadmm.runs.settings import Settings

    known = [item.name.replace("_", "-") for item in fields(Settings)]
    known += ["resume", "config", "unknown", "kind", "at", "format", "way", "network"]
    found: list[str] = []
    for _ in range(int(rng.integers(1, 4))):
        name, value = pick(rng, known), str(pick(rng, (*WORDS, *VALUES)))
        value = value.replace("\0", "?")  # which no argument can have
        forms = ([f"--{name}={value}"], [f"--{name}", value], [f"--no-{name}"], [value])
        found += forms[0] if rng.random() < 0.7 else pick(rng, forms)
    return found


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def damage(rng: Rng, path: Path, data: bytes) -> bytes:
    """Return a damaged file; its suffix decides how."""
    if "checkpoints" in path.parts and rng.random() < 0.7:  # with a correct checksum
        body = damage_archive(rng, data[:-4])
        return body + zlib.crc32(body).to_bytes(4, "little")
    own = {".npy": damage_array, ".npz": damage_archive} | dict.fromkeys(
        TEXTS, damage_text
    )
    return (
        damage_bytes if rng.random() < 0.35 else own.get(path.suffix, damage_bytes)
    )(rng, data)


def some_bytes(rng: Rng, most: int = 64) -> bytes:
    return rng.integers(0, 256, int(rng.integers(1, most)), dtype=np.uint8).tobytes()


def damage_bytes(rng: Rng, data: bytes) -> bytes:
    """Return bytes that are cut, flipped, moved, repeated or replaced."""
    start, stop = sorted(int(k) for k in rng.integers(0, len(data) + 1, 2))
    near = pick(rng, (start, min(len(data), 256), len(data)))  # headers, footers
    near -= int(rng.integers(0, 64)) % (near + 1)
    flipped = bytearray(data or b"\0")
    for place in rng.integers(0, len(flipped), int(rng.integers(1, 9))):
        flipped[place] ^= 1 << int(rng.integers(8))
    size = pick(rng, (b"\xff" * 4, b"\0" * 4, b"\0\0\0\x7f", b"\x0e\0\0\0"))
    sized = data[:near] + size + data[near + 4 :]
    return pick(rng, (
        data[:start], data[:start] + data[stop:], bytes(flipped), sized, sized,
        data[:start] + some_bytes(rng) + data[start:],
        data[:start] + data[start:stop] * 3 + data[stop:],
        pick(rng, (b"", some_bytes(rng, 4000), b"\0" * 999, data * 5)),
    ))  # fmt: skip


def damage_text(rng: Rng, data: bytes) -> bytes:
    """Return a text with one or two changed words, values or lines."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(int(rng.integers(1, 3))):
        lines = text.split("\n")
        at, other = (int(k) for k in rng.integers(0, len(lines), 2))
        match int(rng.integers(8)):
            case 0:
                lines[at], lines[other] = lines[other], lines[at]
            case 1:
                del lines[at]
            case 2:
                lines.insert(at, pick(rng, (lines[other], *WORDS)))
            case 3:
                text = text.replace(pick(rng, ",;=0123 "), pick(rng, WORDS), 5)
                lines = text.split("\n")
            case _:  # a word, a value of TOML or of JSON, or a separator
                pattern = pick(rng, (
                    r"[-\w.+]+", r"(?<== ).*$", r"(?<=: )[^,\n]+",
                    r'"[^"]*"|[-\w.+]+', r"[,;= .\"'<>\[{]",
                ))  # fmt: skip
                if found := list(re.finditer(pattern, text, re.M)):
                    word = pick(rng, found)
                    new = pick(rng, (*WORDS, *VALUES))
                    lines = [text[: word.start()] + new + text[word.end() :]]
        text = "\n".join(lines)
    if rng.random() < 0.1:
        return text.encode(pick(rng, ENCODINGS), "replace")
    return text.encode("utf-8", "surrogatepass")[: 2**20]


def array_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npy_header(shape: str, kind: str = "'<f8'", order: str = "False") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (63 - (len(text) + 10) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def damage_array(rng: Rng, data: bytes) -> bytes:
    """Return a .npy file with a false header, or of another shape, type or values."""
    if rng.random() < 0.5:
        header = npy_header(*(pick(rng, each) for each in (SHAPES, DTYPES, ORDERS)))
        if rng.random() < 0.2:
            header = header[:8] + pick(rng, (b"\0\0", b"\xff\xff")) + header[10:]
        return header + some_bytes(rng, 768)
    found = np.load(io.BytesIO(data), allow_pickle=False)
    strange = [
        np.array(-1), np.array("x"), np.array([]), np.array(b"csc"), np.array([10**15]),
        found.ravel(), found[None], np.atleast_1d(found)[..., :1], found.astype(str),
    ]  # fmt: skip
    if found.dtype.kind in "fiub":
        strange += [
            found.astype(complex), found.astype(np.float32), found.astype(bool),
            found * -1.0, found * np.nan, found * 0, found * 1e300, found * 1e12,
            np.concatenate([found.ravel()] * 2), np.triu(np.atleast_2d(found)),
            found.astype("datetime64[s]"),
        ]  # fmt: skip
    return array_bytes(pick(rng, strange))


def damage_archive(rng: Rng, data: bytes) -> bytes:
    """Return an archive of arrays with false members, sizes or names."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name, other = pick(rng, [*members]), pick(rng, [*members])
    kind, broken = zipfile.ZIP_STORED, False
    match int(rng.integers(9)):
        case 0:
            members[name] = damage_bytes(rng, members[name])
        case 1:
            del members[name]
        case 2:
            tricks = ("../outside/made.npy", "/made.npy", ".npy", "a/b.npy", "x\0.npy")
            members[pick(rng, tricks)] = members.pop(name)
        case 3:  # a few kilobytes that become 64 MiB
            members[name] = npy_header("(2097152, 4)") + bytes(2**26)
            kind = zipfile.ZIP_DEFLATED
        case 4:
            kind, broken = zipfile.ZIP_DEFLATED, True
        case 5 if "about.npy" in members:  # JSON of a checkpoint
            about = np.load(io.BytesIO(members["about.npy"])).tobytes()
            about = damage_text(rng, about)
            members["about.npy"] = array_bytes(np.frombuffer(about, np.uint8))
        case 6:
            members[name], members[other] = members[other], members[name]
        case _:
            members[name] = damage_array(rng, members[name])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return damage_bytes(rng, buffer.getvalue()) if broken else buffer.getvalue()


def misplace(rng: Rng, path: Path, outside: Path) -> None:
    """Put something else in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    links = ("/dev/zero", outside, outside / "kept.txt", path, "absent")
    match int(rng.integers(8)):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as other:
                other.bind(str(path))  # whose path may be too long
        case 3:
            path.touch(0)
        case _:
            path.symlink_to(pick(rng, links))


def make_templates(folder: Path) -> None:
    """Write the files that the cases damage."""
    import pyarrow
    from pyarrow import parquet
    from scipy import io as matlab
    from scipy import sparse

    from dadmm import run
    from dadmm.runs.folder import RunFolder
    from tests.support.pages import unfinish

    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 4)).round(3)
    y = np.round(X @ [1.0, -1.0, 0.5, 0.0], 3)
    kinds = np.array(["red", "green", "blue"])[np.arange(24) % 3]
    label = np.array(["yes", "no"])[np.arange(24) // 5 % 2]
    table = [
        f'{a},{b},"{kind}",{c},{value},{word}'
        for (a, b, c, _), kind, value, word in zip(X, kinds, y, label, strict=True)
    ]
    pairs = [(name, 10**k) for name in ("lan", "host", "wan") for k in range(2, 6)]
    times = [f"{name},{size},{1e-5 + size / 1e8}" for name, size in pairs]
    texts = {
        "my.toml": CONFIG, "network.toml": NETWORK,
        "table.csv": "\n".join(["a,b,kind,w,y,label", *table, ""]),
        "rows.csv": "\n".join(["class,bytes,seconds", *times, ""]),
        "labels.txt": "\n".join(map(str, np.arange(24) % 3)),
        "grid.toml": "ranks = 2\n[base]\nmax_iter = 3\n[grid]\nseed = [1, 2]\n",
        "tasks/0.toml": 'out = "run"\nnodes = 3\nseed = 1\n',
        "log": f"dadmm: rank 1 failed:\n{TRACE}\nKeyError: 'a'\n",
        "ring.edges": "# a ring\n0 1\n1 2\n2 0\n", "chain.edges": "0 1\n1 2\n",
        "ring.graphml": GRAPHML.format("", "1.5"),
        "deep.graphml": GRAPHML.format("", "<a>" * 2000 + "</a>" * 2000),
    }  # fmt: skip
    texts |= {f"{k}.graphml": GRAPHML.format(x, "&f;") for k, x in enumerate(BOMBS)}
    (folder / "tasks").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    wide = GRAPHML.format(BOMBS[0], "&f;").replace("UTF-8", "UTF-16")
    (folder / "wide.graphml").write_bytes(wide.encode("utf-16"))
    np.savetxt(folder / "data.txt", X, header="a b w y", comments="")
    np.save(folder / "data.npy", X)
    np.save(folder / "labels.npy", np.arange(24) % 3)
    np.save(folder / "ring.npy", 1 - np.eye(3))
    np.savez(folder / "data.npz", X=X, y=y, feature_names=np.array([*"abcw"]))
    sparse.save_npz(folder / "sparse.npz", sparse.csr_array(X * (X > 0)))
    matlab.savemat(folder / "data.mat", {"X": X, "y": y, "c": "text"})
    matlab.savemat(folder / "data4.mat", {"X": X, "y": y}, format="4")
    columns: dict[str, Any] = dict(zip("abw", X.T, strict=False))
    columns |= {"kind": kinds, "y": y, "label": label}
    parquet.write_table(
        pyarrow.table(columns), folder / "data.parquet", row_group_size=10
    )
    odd = {
        "a": [[1, 2], [3]] * 12, "b": [{"x": 1}, None] * 12, "c": [b"\xff", None] * 12,
        "kind": pyarrow.array([1, None] * 12, pyarrow.duration("s")), "y": y,
    }  # fmt: skip
    parquet.write_table(pyarrow.table(odd), folder / "odd.parquet")
    words = "--nodes 3 --quiet --max-iter 5 --n-samples 24 --dimension 4 --record-edges"
    words += " --checkpoint-every 2 --tolerance 0"
    less = "--scheme nap --payload quantised --censor 0.01 --agreement global"
    fit = f"{LINEAR} --data table.csv --features a,b,kind,w"
    runs = {
        "run": f"{words} --n-components 2",
        "nap": f"{words} --n-components 2 {less}",
        "huber": f"{words} --problem huber",
        "ppca": f"{SMALL} --data table.csv --features a,b,w",
        "model": f"{fit} --problem logistic --target label",
        "lasso": f"{fit} --problem lasso --target y",
    }
    for name, given in runs.items():
        with contextlib.chdir(folder):  # whose path may have a space
            code = run.main([*given.split(), "--out", name])
        if code:
            raise SystemExit(f"the template {name} ended with {code}")
    going = folder / "going"  # a run that was killed
    shutil.copytree(folder / "run", going)
    unfinish(going, 3, 4, edges=True)
    RunFolder(going, 3, run=RunFolder.open(folder / "run").run).save()
    (going / "ranks.csv").write_text("rank,node,host,pid\n0,0,a,1\n1,1,b,2\n2,2,a,3\n")
    summary = folder / "run" / "summary.json"  # of one process, nothing waits
    told = json.loads(summary.read_text()) | {"mpi_library": "MPICH 5.0.2"}
    summary.write_text(json.dumps(told))
