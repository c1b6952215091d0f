"""``dadmm sweep``: run a grid of settings, and write a table of the results.

In its folder, ``tasks/K.toml`` has the settings of run K, which keeps its number when
the grid grows, ``NAME/`` is the run, and ``logs/`` has the output of all.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from argparse import RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from pathlib import Path
from types import FrameType

from dadmm.core import documents, files, schema
from dadmm.core.arguments import Parser, program
from dadmm.core.documents import Table, read_toml, to_toml, write_text, writing
from dadmm.core.errors import ConfigError
from dadmm.runs import attempt
from dadmm.runs.attempt import read_progress
from dadmm.runs.config import CommandLine, RunConfig, check_harmless, typed
from dadmm.runs.folder import LOCK, RunFolder

TASKS, LOGS, TABLE = "tasks", "logs", "table.csv"
SET_BY_SWEEP = {"out", "nodes", "overwrite"}
GRID = {"ranks": schema.integer(1), "base": schema.OBJECT, "grid": schema.OBJECT}
MOST = 100_000  # runs of a grid
LONGEST = 200  # characters of a folder's name; file systems allow 255
NOT_CONVERGED = 3  # exit code of a run with --strict
RESULTS = ("converged", "reason", "iterations", "n_nodes", "messages", "bytes")
ABOUT = """\
Run every combination of the lists in GRID.toml, each in a folder of its own, and write
table.csv. The same command again continues what is not finished. Given the folder of a
sweep in place of a file, only write the table."""
EXAMPLE = """
GRID.toml, for 12 runs:
  ranks = 4                          # nodes of each run (default: 20)
  [base]                             # what all runs share; keys as in --config
  max_iter = 2000
  [grid]                             # every combination of these
  scheme = ["snap", "vp"]
  topology = ["ring", "complete"]
  seed = [0, 1, 2]
"""


def main(argv: Sequence[str] | None = None) -> int:
    how: Table = {"allow_abbrev": False, "formatter_class": RawDescriptionHelpFormatter}
    parser = Parser("sweep", ABOUT, epilog=EXAMPLE, **how)
    add = parser.add_argument
    add("grid", metavar="GRID.toml", help="the settings, or the folder of a sweep")
    add("--out", metavar="DIR", help="folder of the sweep")
    add("-n", type=int, dest="ranks", metavar="N", help="nodes of each run, in place "
        "of ranks in GRID.toml")  # fmt: skip
    add("--at-most", type=int, metavar="N", help="runs at a time (default: one per "
        "core, or 4 Slurm jobs)")  # fmt: skip
    add("--trust", action="store_true", help="let GRID.toml name a class of your own")
    add("--dry-run", action="store_true", help="list the runs and their status")
    add("--sbatch", metavar="SCRIPT", help="submit a Slurm job array of a script, such "
        "as launch/slurm.sbatch; what follows -- goes to sbatch")  # fmt: skip
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:end])
    if os.path.isdir(given.grid):
        return Sweep(Path(given.grid)).collect()
    if given.out is None:
        raise ConfigError("--out is missing; give the folder of the sweep")
    if given.at_most is not None:
        schema.integer(1).check("--at-most", given.at_most)
    sweep = Sweep(Path(given.out), given.trust)
    sweep.plan(given.grid, given.ranks)
    if given.dry_run:
        for name in sweep.chosen:
            print(f"{read_progress(sweep.folder / name).label:<14}{name}")
        return 0
    return sweep.run(given.at_most, given.sbatch, words[end + 1 :])


def say(sentence: str) -> None:
    print(f"dadmm: {sentence}", file=sys.stderr, flush=True)


class Sweep:
    """The runs of a folder by name, with their settings as TOML."""

    def __init__(self, folder: Path, trust: bool = False) -> None:
        self.folder, self.trust = folder, ["--trust"] * trust
        self.tasks: dict[str, str] = {}
        self.chosen: dict[str, RunConfig] = {}  # the runs of a grid
        while files.exists(file := self.file(len(self.tasks))):
            table = read_toml(file)
            name = Path(str(table.get("out"))).name
            if not re.fullmatch(r"(?!\.|logs$|tasks$)[\w.,=+-]+", name):
                raise ConfigError(f"{file} is damaged: out is not the folder of a run")
            self.tasks[name] = to_toml(table)
        self._before = dict(self.tasks)
        self._signals, self._running = 0, set[subprocess.Popen[bytes]]()
        path = os.path.abspath(folder).encode()
        self._job = f"dadmm-{hashlib.sha256(path).hexdigest()[:8]}"  # in Slurm

    def file(self, number: int) -> Path:
        return self.folder / TASKS / f"{number}.toml"

    def plan(self, file: str, ranks: int | None) -> None:
        """Add the runs of a grid; raise if one of them cannot be run."""
        table: Table = {"ranks": 20, "base": {}, "grid": {}} | read_toml(file)
        table |= {} if ranks is None else {"ranks": ranks}
        if unknown := table.keys() - GRID:
            raise ConfigError(f"{file}: unknown key {min(unknown)!r}; use {[*GRID]}")
        for name, kind in GRID.items():
            kind.check(f"{file}: {name}", table[name])
        n, base, grid = table["ranks"], table["base"], table["grid"]
        for name, values in grid.items():
            if not (isinstance(values, list) and values):
                raise ConfigError(
                    f"{file}: {name} in [grid] must be a list of values, got "
                    f"{values!r}; write a value that all runs share in [base]"
                )
        if math.prod(map(len, grid.values())) > MOST:
            raise ConfigError(f"{file} asks for more than {MOST} runs; use fewer")
        if both := base.keys() & grid.keys() | SET_BY_SWEEP & (base | grid).keys():
            raise ConfigError(
                f"{file}: {min(both)} must be in only one of [base] and [grid], and "
                "out, overwrite and nodes in neither, because a sweep sets them"
            )
        for values in product(*grid.values()):
            changed = dict(zip(grid, values, strict=True))
            name = name_of(changed)
            own = {"out": str(self.folder / name), "nodes": n} | base | changed
            own = typed(own, file)
            check_harmless(own, {}, file, bool(self.trust))
            self.chosen[name] = config = RunConfig(**own)
            config.settle(n)
            attempt.check_same_settings(config, self.folder / name, n)
            self.tasks[name] = to_toml(own)

    def run(self, at_most: int | None, script: str | None, rest: list[str]) -> int:
        """Run what is not finished, here or in Slurm, and write the table."""
        folder = self.folder
        there = set(os.listdir(folder)) if folder.is_dir() else set()
        if not self._before and there - {LOCK, TASKS, LOGS}:
            raise ConfigError(
                f"{folder} is not empty, and has no sweep; choose another --out"
            )
        queued, numbers = self.queued(), {name: k for k, name in enumerate(self.tasks)}
        for name, text in self._before.items():
            if numbers[name] in queued and self.tasks[name] != text:
                raise ConfigError(
                    f"{folder / name} is in the queue with other settings; wait for it "
                    "or cancel it, or choose another --out"
                )
        left = {
            name: numbers[name] for name, config in self.chosen.items()
            if not read_progress(folder / name).is_done(config.max_iter)
        }  # fmt: skip
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = RunFolder(folder)
            lock.lock(first=True)
            for name in (TASKS, LOGS):
                (folder / name).mkdir(exist_ok=True)
            for name, number in numbers.items():
                if self.tasks[name] != self._before.get(name):
                    write_text(self.file(number), self.tasks[name])
        if script is None or not left:
            codes = self.run_here(left, at_most or os.cpu_count() or 1)
            return self.collect() or int(any(codes))
        waiting = [number for number in left.values() if number not in queued]
        if not waiting:
            say("all runs that are left are in the queue")
            return 0
        ranks = next(iter(self.chosen.values())).nodes
        job = self._submit(
            "-n", str(ranks), f"--array={','.join(map(str, waiting))}%{at_most or 4}",
            "--output", str(folder / LOGS / "%A_%a.out"), *rest, *shlex.split(script),
            "--config", str(folder / TASKS / "%a.toml"), *self.trust,
        )  # fmt: skip
        later = f"for its table: {program('sweep')} {folder}"
        say(f"job {job}: {len(waiting)} of {len(self.tasks)} runs; {later}")
        return 0

    def _submit(self, *words: str) -> str:
        """Submit a job array, and return its number."""
        command = ["sbatch", "--parsable", "--job-name", self._job, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            reason = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            reason = f"sbatch: {error.strerror}; run here, without --sbatch"
        if reason:
            for number in range(len(self._before), len(self.tasks)):
                files.remove(self.file(number))
            raise ConfigError(f"Slurm did not accept the array: {reason}")
        return done.stdout.strip().partition(";")[0]

    def queued(self) -> set[int]:
        """Return the numbers of the runs in Slurm's queue."""
        command = ["squeue", "-h", "-r", "--me", "--name", self._job, "-o", "%K"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except OSError:
            return set()
        return {int(word) for word in found.stdout.split() if word.isdecimal()}

    def collect(self) -> int:
        """Write the table, with a row per run, and print which are not finished."""
        if not self.tasks:
            raise ConfigError(f"{self.folder} holds no sweep: it has no {TASKS}/0.toml")
        settings = [read_toml(self.file(k)) for k in range(len(self.tasks))]
        names = dict.fromkeys(key for own in settings for key in own if key != "out")
        varied = [k for k in names if len({str(own.get(k)) for own in settings}) > 1]
        queued, rows = self.queued(), []
        for number, (name, own) in enumerate(zip(self.tasks, settings, strict=True)):
            folder = self.folder / name
            found = read_progress(folder)
            row: Table = {key: plain(own[key]) for key in varied if key in own}
            waits = number in queued and not found.complete
            row["status"] = "in queue" if waits else found.label
            summary = found.summary
            row |= {key: summary[key] for key in RESULTS if key in summary}
            seconds = summary.get("seconds", {}).items()
            row |= {f"seconds_{phase}": value for phase, value in seconds}
            row |= summary.get("metrics", {})
            row = {k: v for k, v in row.items() if not isinstance(v, dict | list)}
            rows.append(row | {"folder": str(folder)})
            if not found.complete:
                print(f"{row['status']:<14}{folder}")
        documents.write_csv(self.folder / TABLE, rows, last="folder")
        totals = Counter(row["status"] for row in rows)
        counts = ", ".join(f"{count} {status}" for status, count in totals.items())
        say(f"{len(rows)} runs: {counts}; table in {self.folder / TABLE}")
        return 0

    def run_here(self, tasks: dict[str, int], at_most: int) -> list[int]:
        """Run tasks in processes, `at_most` at a time; return their exit codes."""
        self._left, self._ended, self._start = tasks, count(1), time.monotonic()
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.stop)
        with ThreadPoolExecutor(at_most) as pool:
            return list(pool.map(self._run_task, tasks))

    def _run_task(self, name: str) -> int:
        folder, of = self.folder / name, len(self._left)
        words = ["--config", str(self.file(self._left[name])), *self.trust]
        given = CommandLine(self.chosen[name], dry_run=False, resume=None)
        planned = attempt.plan_attempt(given, words, folder, given.config.nodes or 1)
        if planned is None:  # it had results before it was marked as failed
            return 0
        if self._signals:
            return 128 + signal.SIGINT
        output = self.folder / LOGS / f"{name}.out"
        with open(output, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dadmm", "run", *planned],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._running.add(process)
        self._pass_signal(process)  # one that came before the process was added
        code = process.wait()
        self._running.discard(process)
        code = 0 if code == NOT_CONVERGED else code
        if code and not (self._signals and code < 0):  # no signal of ours ended it
            attempt.write_failure(folder, code, f"see {output}")
        done, minutes = next(self._ended), (time.monotonic() - self._start) / 60
        left = minutes * (of - done) / done
        when = f"{done} of {of} in {minutes:.1f} min, about {left:.1f} left"
        say(f"{name}: {read_progress(folder).label} ({when})")
        return code

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop each run at a common iteration; at the second signal, kill all."""
        self._signals += 1
        for process in list(self._running):
            self._pass_signal(process)

    def _pass_signal(self, process: subprocess.Popen[bytes]) -> None:
        if self._signals:
            process.send_signal(
                signal.SIGUSR1 if self._signals == 1 else signal.SIGKILL
            )


def name_of(changed: Table) -> str:
    """Return the name of a run, made of its settings and valid for a folder."""
    exact = ",".join(f"{name}={plain(value)}" for name, value in changed.items())
    name = re.sub(r"[^\w.,=+-]", "_", exact)[:LONGEST] or "run"
    if name == exact:
        return name
    return f"{name}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def plain(value: object) -> str:
    """Return a value as it appears in a name and in a table."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return value if isinstance(value, str) else to_toml(value)
