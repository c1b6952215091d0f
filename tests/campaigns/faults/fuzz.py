"""Give bad inputs to the commands of dadmm, and judge every end.

    python -m tests.campaigns.faults.fuzz --cases 3000 --jobs 2
    python -m tests.campaigns.faults.fuzz --only parquet:17 --keep --out /tmp/again

Each case is a process of its own with limits of memory and time. Exit code 0: no case
broke the rule; 1: some did; 2: bad arguments.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, NoReturn

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded: processes are forked
os.environ["MPLBACKEND"] = "Agg"

from tests.campaigns.faults.bad_inputs import KINDS, draw, make_templates  # noqa: E402
from tests.support.runs import contents  # noqa: E402

COMMANDS = ("run", "predict", "plot", "replay", "waiting", "calibrate")
LOADED = (
    "pyarrow.csv", "pyarrow.parquet", "scipy.io", "scipy.sparse", "networkx",
    "dadmm.cli.models", "dadmm.runs.summary", "dadmm.cli.results", "dadmm.cli.privacy",
    "dadmm.drawing.figures", "dadmm.runs.stored", "xml.etree.ElementTree",
    *(f"dadmm.{name}" for name in COMMANDS),
)  # fmt: skip
MEMORY = 2**31  # bytes that a case may have, besides what is loaded
CPU_SECONDS, SECONDS = 20, 100  # that a case may take
LONGEST = 1100  # characters of a line
ERROR, NOTE = "dadmm: error: ", "dadmm: "
TRACEBACK, HANG, TOUCHED = "tracebacks", "hangs", "touched files"
CODE, UNCLEAR = "wrong exit codes", "unclear sentences"
FAILURES = (TRACEBACK, HANG, TOUCHED, CODE, UNCLEAR)
REFUSED, ACCEPTED = "refused", "accepted"


class Ended(NamedTuple):
    """How the process of a case ended."""

    code: int | None  # negative: by a signal; None: its time was up
    out: str
    err: str


class Verdict(NamedTuple):
    """What came of a case."""

    kind: str
    seed: int
    outcome: str
    command: str
    story: str


def judge(ended: Ended, touched: Sequence[str], strict: bool = False) -> str:
    """Return the outcome of a case: refused, accepted, or how it broke the rule."""
    lines = ended.err.splitlines()
    errors = [line for line in lines if line.startswith(ERROR)]
    if ended.code in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return HANG
    if "Traceback" in ended.err + ended.out:
        return TRACEBACK
    if touched:
        return TOUCHED
    if ended.code not in ((0, 2, 3) if strict else (0, 2)):
        return CODE
    if len(errors) != (ended.code == 2) or (errors and len(lines) > 1):
        return UNCLEAR
    if any(not line.startswith(NOTE) or len(line) > LONGEST for line in lines):
        return UNCLEAR
    return REFUSED if errors else ACCEPTED


def play(kind: str, seed: int, root: Path, keep: bool = False) -> Verdict:
    """Write the files of a case, run its command, and judge its end."""
    home = root / f"{kind}-{seed}"
    work, outside = home / "work", home / "outside"
    for folder in (work, outside / "folder"):
        folder.mkdir(parents=True)
    (outside / "kept.txt").write_text("kept\n")
    (outside / "folder" / "kept.npy").write_bytes(b"kept")
    case = draw(kind, seed, work, root / "templates")
    before = snapshot(home)

    def start() -> int:
        os.chdir(work)
        os.environ["TMPDIR"] = str(work)
        return int(import_module(f"dadmm.{case.command}").main(case.argv))

    ended = in_process(start, home)
    after = snapshot(home)
    touched = sorted(k for k in before | after if before.get(k) != after.get(k))
    outcome = judge(ended, touched, "--strict" in case.argv)
    if not keep:
        shutil.rmtree(home, ignore_errors=True)
    words = " ".join([f"dadmm.{case.command}", *case.argv])
    story = "; ".join([f"code {ended.code}", *touched, ended.err[-3000:].strip()])
    return Verdict(kind, seed, outcome, words, story)


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
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        late = not poll.poll(1000 * SECONDS)
        if late:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(handle)
    out, err = (
        (home / name).read_text("utf-8", "replace") for name in ("out.txt", "err.txt")
    )
    return Ended(None if late else code, out, err)


def _be_child(start: Callable[[], int], home: Path) -> NoReturn:
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number, name in ((1, "out.txt"), (2, "err.txt")):
            os.dup2(os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        # the streams of a worker of the pool, or of pytest, may be others
        sys.stdout = open(1, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
        code = start()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def load() -> None:
    """Load what the commands load, so that a case starts at once."""
    for name in LOADED:
        import_module(name)
    gc.freeze()  # processes share the memory of modules


def table(verdicts: Iterable[Verdict]) -> str:
    """Return the table of a campaign in Markdown, one line per kind."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(verdict.kind, Counter())[verdict.outcome] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    shown = (REFUSED, ACCEPTED, *FAILURES)
    lines = [("input", "cases", *shown), ("---", *["---:"] * (1 + len(shown)))]
    order = [kind for kind in KINDS if kind in counts]
    for kind, found in [*((k, counts[k]) for k in order), ("all", total)]:
        cells = [found.total(), *(found[outcome] for outcome in shown)]
        lines.append((kind.replace("_", " "), *map(str, cells)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cases", type=int, default=2000, help="how many, of all kinds in turn")
    add("--seed", type=int, default=0, help="of the first case of each kind")
    add("--kinds", default=",".join(KINDS), help="which inputs")
    add("--only", help="these cases, as kind:seed, with commas")
    add("--jobs", type=int, default=1, help="cases at a time")
    add("--out", type=Path, help="folder of the cases (default: a temporary one)")
    add("--keep", action="store_true", help="keep the folders of all cases")
    chosen = parser.parse_args(argv)
    names = chosen.only or chosen.kinds
    chosen.pairs = [name.partition(":")[::2] for name in names.split(",")]
    unknown = {kind for kind, _ in chosen.pairs} - set(KINDS)
    if unknown:
        parser.error(f"unknown kinds {sorted(unknown)}; choose from {', '.join(KINDS)}")
    return chosen


def cases_of(chosen: argparse.Namespace) -> list[tuple[str, int]]:
    if chosen.only:
        return [(kind, int(seed)) for kind, seed in chosen.pairs]
    kinds = [kind for kind, _ in chosen.pairs]
    places = [divmod(k, len(kinds)) for k in range(chosen.cases)]
    return [(kinds[which], chosen.seed + k) for k, which in places]


def _play(arguments: tuple[str, int, Path, bool]) -> Verdict:
    return play(*arguments)


def play_all(
    cases: Sequence[tuple[str, int]], root: Path, keep: bool = False, jobs: int = 1
) -> Iterator[Verdict]:
    """Play cases, several at a time if asked; yield the verdicts as they come."""
    templates = root / "templates"
    if not templates.exists():
        templates.mkdir(parents=True)

        def make() -> int:
            make_templates(templates)
            return 0

        ended = in_process(make, root)  # a process of its own: it starts threads
        if ended.code != 0:
            raise RuntimeError(f"the templates cannot be written: {ended.err}")
    due = [(kind, seed, root, keep) for kind, seed in cases]
    if jobs == 1:
        yield from map(_play, due)
        return
    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_play, due, chunksize=4)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments_of(argv)
    load()
    root = Path(chosen.out or tempfile.mkdtemp(prefix="dadmm-fuzz-")).resolve()
    found = []
    try:
        for verdict in play_all(cases_of(chosen), root, chosen.keep, chosen.jobs):
            found.append(verdict)
            if verdict.outcome in FAILURES:
                name = f"{verdict.kind}:{verdict.seed}"
                print(
                    f"{name} {verdict.outcome}: {verdict.command[:300]!r}\n"
                    f"{verdict.story}\n    again: python -m tests.campaigns."
                    f"faults.fuzz --only {name} --keep --out /tmp/again",
                    flush=True,
                )
    finally:
        if not chosen.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(table(found))
    return int(any(verdict.outcome in FAILURES for verdict in found))


if __name__ == "__main__":
    sys.exit(main())
