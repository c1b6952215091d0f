"""Give bad inputs to the commands of dadmm, and judge every end.

Each case is a process of its own with limits of memory and time.
"""

import gc
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from launch import commands, mpi
from launch.console import run_command
from tests.campaigns.faults.inputs import KINDS, draw, make_templates
from tests.support.runs import contents

LOADED = (  # by the commands; processes share their memory
    "pyarrow.csv", "pyarrow.parquet", "scipy.io", "scipy.sparse", "networkx",
    "dadmm.run", "dadmm.cli.results", "dadmm.predict", "dadmm.plot",
    "dadmm.report", "dadmm.replay", "dadmm.waiting", "dadmm.calibrate",
    "dadmm.show.to_matplotlib", "launch.diagnosis", "dadmm.cli.sweep",
)  # fmt: skip
MEMORY = 2**31  # bytes that a case may have, besides what is loaded
CPU_SECONDS, SECONDS = 20, 300  # that a case may take
LONGEST = 1100  # characters of a line
ERROR, NOTE = "dadmm: error: ", "dadmm: "
TRACEBACK, HANG, TOUCHED = "tracebacks", "hangs", "touched files"
CODE, UNCLEAR = "wrong exit codes", "unclear sentences"
FAILURES = (TRACEBACK, HANG, TOUCHED, CODE, UNCLEAR)
OUTCOMES = ("refused", "accepted", *FAILURES)
__all__ = ["KINDS", "in_process", "play", "prepare"]


class Ended(NamedTuple):
    """How the process of a case ended."""

    code: int | None  # negative: by a signal; None: its time was up
    out: str
    err: str


def judge(ended: Ended, touched: list[str], codes: tuple[int, ...], error: str) -> str:
    """Return the outcome of a case: refused, accepted, or how it broke the rule.

    The sentence of an error begins with ``error``.
    """
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


def play(kind: str, seed: int, home: Path, templates: Path) -> dict[str, Any]:
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
        return int(import_module(f"dadmm.{command}").main(argv))

    ended = in_process(start, home)
    after = snapshot(home)
    touched = sorted(k for k in before | after if before.get(k) != after.get(k))
    codes = (0, 2, 3) if "--strict" in argv else (0, 2)
    outcome = judge(ended, touched, codes, NOTE if command == "launch" else ERROR)
    words = repr(" ".join([f"dadmm.{command}", *argv]))[:300]
    story = "; ".join([f"code {ended.code}", *touched, ended.err[-3000:].strip()])
    return {"outcome": outcome, "mpi": "", "run": words, "story": story}


def snapshot(home: Path) -> dict[str, object]:
    """Return all that is in and beside the folder outside, with its modes."""
    found: dict[str, object] = dict(contents(home / "outside"))
    found |= {f"{path} (mode)": os.lstat(path).st_mode for path in found}
    names = set(os.listdir(home)) - {"out.txt", "err.txt"}
    return found | {f"{home} (names)": sorted(names)}


def in_process(start: Callable[[], int], home: Path) -> Ended:
    """Call a function in a process with limits of memory and time."""
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


def _be_child(start: Callable[[], int], home: Path) -> NoReturn:
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
