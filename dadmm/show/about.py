"""The section on settings, versions and hosts, and the command that repeats a run."""

from __future__ import annotations

from dataclasses import fields
from shlex import quote
from typing import Any

from dadmm.core.arguments import program
from dadmm.runs.config import RunConfig
from dadmm.runs.settings import IN_MEMORY
from dadmm.runs.stored import StoredRun
from dadmm.show.html import NONE, details, table, text
from dadmm.show.page import Page

LEFT_OUT = ("out", "overwrite", "quiet", "report")  # of the command


def section(page: Page) -> str:
    """Return the section."""
    runs = page.runs
    commands = "".join(
        f"<h3>{text(page.titled('Repeat the run', run))}</h3>"
        f'<pre class="command">{text(command(run))}</pre>'
        for run in runs
    )
    if page.is_comparison:
        commands = details("Commands that repeat the runs", commands)
    names = [page.name(run) for run in runs] if page.is_comparison else ["value"]
    applied = [run.config.applied() for run in runs]
    keys = [
        item.name for item in fields(RunConfig) if any(item.name in a for a in applied)
    ]
    rows = [[key, *(a.get(key, NONE) for a in applied)] for key in keys]
    differ = [row for row in rows if len({str(word) for word in row[1:]}) > 1]
    head, words = ["setting", *names], "Settings that applied"
    found = [_facts(run) for run in runs]
    known = list(dict.fromkeys(key for own in found for key in own))
    about = [[key, *(own.get(key, NONE) for own in found)] for key in known]
    return (
        commands
        + (table(head, differ, "Settings that differ") if differ else "")
        + details(f"{len(rows)} settings applied", table(head, rows, words))
        + details("Versions and hosts", table(["what", *names], about, "Versions"))
    )


def command(run: StoredRun) -> str:
    """Return the command that repeats a run, in the folder where it was started."""
    if run.config.data == IN_MEMORY:
        return "dadmm.solve, with the problems of the Python program that saved it"
    left_out = (*LEFT_OUT, "nodes") if run.over_mpi else LEFT_OUT
    words = []
    for name, value in run.config.chosen().items():
        flag = "--" + name.replace("_", "-")
        if name in left_out:
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, quote(_word(value))]
    start = f"mpiexec -n {run.config.nodes} " * run.over_mpi
    return " ".join([start + program("run"), *words])


def _word(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _facts(run: StoredRun) -> dict[str, str]:
    """Return versions, hosts and seeds of a run."""
    found = run.summary
    facts = {"folder": str(run.folder)}
    facts |= {str(k): str(v) for k, v in (found.get("versions") or {}).items()}
    if found.get("mpi_library"):
        facts["MPI"] = found["mpi_library"]
    hosts = found.get("hosts") or {}
    if hosts:
        shown = [f"{name} ({count})" for name, count in list(hosts.items())[:20]]
        more = f" and {len(hosts) - 20} others" if len(hosts) > 20 else ""
        facts["hosts (processes)"] = ", ".join(shown) + more
    return facts
