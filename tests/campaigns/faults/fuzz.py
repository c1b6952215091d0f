"""Bad inputs: a kind and a seed decide a damaged file and the command that reads it.

Whole files are in ``templates``; `make_templates` adds runs. Each case has a copy of
them, one of which is damaged; how depends on its suffix only, so that a new kind is a
line of ``inputs.toml``. A case is a process of its own with limits of memory and time.
"""

import contextlib
import gc
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import tomllib
import traceback
import zipfile
import zlib
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import numpy as np

from dadmm.__main__ import COMMANDS, main_of
from launch import commands, mpi
from launch.console import run_command
from tests.campaigns.draw import Draw
from tests.support.processes import Ended
from tests.support.runs import contents

LOADED = (  # by the commands; processes share their memory
    "pyarrow.csv", "pyarrow.parquet", "scipy.io", "scipy.sparse", "networkx",
    "dadmm.show.to_matplotlib", "launch.diagnosis", "dadmm.cli.results",
    *(f"dadmm.{place}" for place, _, _ in COMMANDS.values()),
)  # fmt: skip
MEMORY = 2**31  # bytes that a case may have, besides what is loaded
CPU_SECONDS, SECONDS = 20, 300  # that a case may take
LONGEST = 1100  # characters of a line
ERROR, NOTE = "dadmm: error: ", "dadmm: "
TRACEBACK, HANG, TOUCHED = "tracebacks", "hangs", "touched files"
CODE, UNCLEAR = "wrong exit codes", "unclear sentences"
FAILURES = (TRACEBACK, HANG, TOUCHED, CODE, UNCLEAR)
OUTCOMES = ("refused", "accepted", *FAILURES)
HERE = Path(__file__).parent
TABLE = tomllib.loads((HERE / "inputs.toml").read_text())
KINDS: dict[str, dict[str, list[str]]] = TABLE["kinds"]
WORDS = [*TABLE["words"], "9" * 30, "9" * 5000, "a" * 9000, "\ud800", "[" * 10**5]
SHAPES = [*TABLE["shapes"], f"({'9' * 4000},)", f"({'1,' * 70})"]
TRICKS = ("../outside/made.npy", "/made.npy", ".npy", "a/b.npy", "x\0.npy")
SIZES = (b"\xff" * 4, b"\0" * 4, b"\0\0\0\x7f", b"\x0e\0\0\0")
# a word, a value of TOML or of JSON, a text, or a separator
PATTERNS = (
    r"[-\w.+]+", r"(?<== ).*$", r"(?<=: )[^,\n]+", r'"[^"]*"|[-\w.+]+',
    r"[,;= .\"'<>\[{]",
)  # fmt: skip


def play(kind: str, seed: int, home: Path, templates: Path) -> dict[str, str]:
    """Write the files of a case, run its command, and judge its end."""
    work, outside = home / "work", home / "outside"
    for folder in (work, outside / "folder"):
        folder.mkdir(parents=True)
    (outside / "kept.txt").write_text("kept\n")
    (outside / "folder" / "kept.npy").write_bytes(b"kept")
    command, argv = draw(kind, seed, work, templates)
    before = snapshot(home)

    def start() -> int:
        os.chdir(work)
        os.environ["TMPDIR"] = str(work)
        if command == "launch":
            own = mpi.Runtime(sys.executable, "", dict(os.environ))
            mpi.prepare = lambda *_, **options: own
            return run_command(getattr(commands, argv[0]), argv[1:])
        return main_of(command)(argv)

    ended = in_process(start, home)
    after = snapshot(home)
    touched = sorted(k for k in before | after if before.get(k) != after.get(k))
    codes = (0, 2, 3) if "--strict" in argv else (0, 2)
    outcome = judge(ended, touched, codes, NOTE if command == "launch" else ERROR)
    words = repr(" ".join(["dadmm", command, *argv]))[:300]
    story = "; ".join([f"code {ended.code}", *touched, ended.err[-3000:].strip()])
    return {"outcome": outcome, "mpi": "", "run": words, "story": story}


def judge(ended: Ended, touched: list[str], codes: tuple[int, ...], error: str) -> str:
    """Return the outcome of a case, whose error must be a line that begins so."""
    lines = ended.err.splitlines()
    errors = [line for line in lines if line.startswith(error if ended.code else ERROR)]
    if ended.code in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return HANG
    if "Traceback" in ended.err + ended.out:
        return TRACEBACK
    if touched:
        return TOUCHED
    if ended.code not in codes:
        return CODE
    one = len(errors) == (ended.code == 2) and not (errors and len(lines) > 1)
    if one and all(line.startswith(NOTE) and len(line) <= LONGEST for line in lines):
        return "refused" if errors else "accepted"
    return UNCLEAR


def snapshot(home: Path) -> dict[str, object]:
    """Return all that is in and beside the folder outside, with its modes."""
    found: dict[str, object] = dict(contents(home / "outside"))
    found |= {f"{path} (mode)": os.lstat(path).st_mode for path in found}
    names = set(os.listdir(home)) - {"out.txt", "err.txt"}
    return found | {f"{home} (names)": sorted(names)}


def in_process(start, home: Path) -> Ended:
    """Call a function in a limited process; its code is None if its time was up."""
    pid = os.fork()
    if pid == 0:
        _be_child(start, home)
    handle = os.pidfd_open(pid)
    late = not select.select([handle], [], [], SECONDS)[0]
    os.close(handle)
    if late:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    names = ("out.txt", "err.txt")
    texts = ((home / name).read_text("utf-8", "replace") for name in names)
    return Ended(None if late else code, *texts)


def _be_child(start, home: Path) -> None:
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out.txt"), (2, "err.txt")):
            os.dup2(os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        # the streams of a worker of the pool, or of pytest, may be others
        sys.stdout = open(1, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits = {
            resource.RLIMIT_AS: (pages * resource.getpagesize() + MEMORY,) * 2,
            resource.RLIMIT_CPU: (CPU_SECONDS, CPU_SECONDS + 5),
            resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_FSIZE: (2**30, 2**30),
        }  # fmt: skip
        for what, most in limits.items():
            resource.setrlimit(what, most)
        code = start()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def prepare(root: Path) -> None:
    """Load what the cases need, and write the files that they damage."""
    for name in LOADED:
        import_module(name)
    gc.freeze()
    templates = root / "templates"
    if not templates.exists():  # in a process of its own: it starts threads
        ended = in_process(lambda: make_templates(templates) or 0, root)
        if ended.code != 0:
            raise RuntimeError(f"the templates cannot be written: {ended.err}")


def make_templates(folder: Path) -> None:
    from dadmm import run
    from dadmm.runs.folder import RunFolder
    from tests.support.pages import unfinish

    shutil.copytree(HERE / "templates", folder, dirs_exist_ok=True)
    for name, given in TABLE["runs"].items():
        with contextlib.chdir(folder):  # whose path may have a space
            code = run.main([*expand(given).split(), "--out", name])
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


def expand(line: str) -> str:
    for name, text in reversed(TABLE["macros"].items()):
        line = re.sub(rf"\b{name}\b", text, line)
    return line


def draw(kind: str, seed: int, folder: Path, templates: Path) -> tuple[str, list[str]]:
    """Write the input of a case into a folder; return its command and arguments."""
    by = Draw(seed, *kind.encode())
    shutil.copytree(templates, folder, dirs_exist_ok=True)
    chosen = KINDS[by.pick([*KINDS][1:]) if kind == "flags" else kind]
    matching = folder.glob(by.pick(chosen["files"]))
    file = by.pick(sorted(path for path in matching if path.is_file()))
    name, line = str(file.relative_to(folder)), expand(by.pick(chosen["commands"]))
    line = line.replace("FILE", name).replace("FOLDER", name.split("/")[0])
    command, *words = line.replace("PROBLEM", by.pick(TABLE["problems"])).split()
    if kind == "flags":
        return command, [*words, *false_flags(by)]
    for option, given in TABLE["options"].items() if kind in TABLE["tables"] else ():
        if by.chance(0.05):
            words += [f"--{option}", by.pick(given)]
    with np.errstate(all="ignore"):
        file.write_bytes(damage(by, file, file.read_bytes()))
    if by.chance(0.06):
        inner = file.parent != folder and by.chance(0.3)
        misplace(by, file.parent if inner else file, folder.parent / "outside")
    return command, words


def false_flags(by: Draw) -> list[str]:
    from dadmm.runs.settings import Settings

    known = [item.name.replace("_", "-") for item in fields(Settings)]
    known += ["resume", "config", "unknown", "kind", "at", "format", "way", "network"]
    found: list[str] = []
    for _ in range(by.integer(1, 3)):
        name, value = by.pick(known), by.pick([*WORDS, *TABLE["values"]])
        value = value.replace("\0", "?")  # which no argument can have
        forms = ([f"--{name}={value}"], [f"--{name}", value], [f"--no-{name}"], [value])
        found += forms[0] if by.chance(0.7) else by.pick(forms)
    return found


def damage(by: Draw, path: Path, data: bytes) -> bytes:
    """Return a damaged file; its suffix decides how."""
    if "checkpoints" in path.parts and by.chance(0.7):  # with a correct checksum
        body = damage_archive(by, data[:-4])
        return body + zlib.crc32(body).to_bytes(4, "little")
    binary = dict.fromkeys((".mat", ".parquet"), damage_bytes)
    own = {".npy": damage_array, ".npz": damage_archive, **binary}
    chosen = damage_bytes if by.chance(0.35) else own.get(path.suffix, damage_text)
    return chosen(by, data)


def damage_bytes(by: Draw, data: bytes) -> bytes:
    """Return bytes that are cut, flipped, moved, repeated or replaced."""
    start, stop = sorted(by.integer(0, len(data)) for _ in range(2))
    near = by.pick((start, min(len(data), 256), len(data)))  # headers, footers
    near = max(0, near - by.integer(0, 63))
    sized = data[:near] + by.pick(SIZES) + data[near + 4 :]
    flipped = bytearray(data or b"\0")
    for _ in range(by.integer(1, 8)):
        flipped[by.integer(0, len(flipped) - 1)] ^= 1 << by.integer(0, 7)
    return by.pick((
        data[:start], data[:start] + data[stop:], bytes(flipped), sized, sized,
        data[:start] + by.rng.bytes(by.integer(1, 63)) + data[start:],
        data[:start] + data[start:stop] * 3 + data[stop:],
        by.pick((b"", by.rng.bytes(by.integer(1, 4000)), b"\0" * 999, data * 5)),
    ))  # fmt: skip


def damage_text(by: Draw, data: bytes) -> bytes:
    """Return a text with one or two changed words, values or lines."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(by.integer(1, 2)):
        lines = text.split("\n")
        at, other = (by.integer(0, len(lines) - 1) for _ in range(2))
        match by.integer(0, 7):
            case 0:
                lines[at], lines[other] = lines[other], lines[at]
            case 1:
                del lines[at]
            case 2:
                lines.insert(at, by.pick([lines[other], *WORDS]))
            case 3:
                lines = [text.replace(by.pick(",;=0123 "), by.pick(WORDS), 5)]
            case _:
                found = list(re.finditer(by.pick(PATTERNS), text, re.M))
                start, stop = by.pick(found).span() if found else (0, 0)
                new = by.pick([*WORDS, *TABLE["values"]])
                lines = [text[:start] + new + text[stop:]]
        text = "\n".join(lines)
    if by.chance(0.1):
        return text.encode(by.pick(TABLE["encodings"]), "replace")
    return text.encode("utf-8", "surrogatepass")[: 2**20]


def array_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npy_header(shape: str, kind: str = "'<f8'", order: str = "False") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (63 - (len(text) + 10) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def damage_array(by: Draw, data: bytes) -> bytes:
    """Return a .npy file with a false header, or of another shape, type or values."""
    if by.chance(0.5):
        names = by.pick(SHAPES), by.pick(TABLE["dtypes"]), by.pick(TABLE["orders"])
        header = npy_header(*names)
        if by.chance(0.2):
            header = header[:8] + by.pick((b"\0\0", b"\xff\xff")) + header[10:]
        return header + by.rng.bytes(by.integer(1, 767))
    found = np.load(io.BytesIO(data), allow_pickle=False)
    strange = [
        np.array(-1), np.array("x"), np.array([]), np.array(b"csc"), np.array([10**15]),
        found.ravel(), found[None], np.atleast_1d(found)[..., :1], found.astype(str),
    ]  # fmt: skip
    if found.dtype.kind in "fiub":
        kinds = (complex, np.float32, bool, "datetime64[s]")
        strange += [found.astype(kind) for kind in kinds]
        strange += [found * factor for factor in (-1.0, np.nan, 0, 1e300, 1e12)]
        twice = np.concatenate([found.ravel()] * 2)
        strange += [twice, np.triu(np.atleast_2d(found))]
    return array_bytes(by.pick(strange))


def damage_archive(by: Draw, data: bytes) -> bytes:
    """Return an archive of arrays with false members, sizes or names."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name, other = by.pick(members), by.pick(members)
    kind, broken = zipfile.ZIP_STORED, False
    match by.integer(0, 8):
        case 0:
            members[name] = damage_bytes(by, members[name])
        case 1:
            del members[name]
        case 2:
            members[by.pick(TRICKS)] = members.pop(name)
        case 3:  # a few kilobytes that become 64 MiB
            members[name] = npy_header("(2097152, 4)") + bytes(2**26)
            kind = zipfile.ZIP_DEFLATED
        case 4:
            kind, broken = zipfile.ZIP_DEFLATED, True
        case 5 if "about.npy" in members:  # JSON of a checkpoint
            about = np.load(io.BytesIO(members["about.npy"])).tobytes()
            about = damage_text(by, about)
            members["about.npy"] = array_bytes(np.frombuffer(about, np.uint8))
        case 6:
            members[name], members[other] = members[other], members[name]
        case _:
            members[name] = damage_array(by, members[name])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return damage_bytes(by, buffer.getvalue()) if broken else buffer.getvalue()


def misplace(by: Draw, path: Path, outside: Path) -> None:
    """Put something else in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    links = ("/dev/zero", outside, outside / "kept.txt", path, "absent")
    match by.integer(0, 7):
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
            path.symlink_to(by.pick(links))
