"""The whole page: sections in order, with style, scripts and data in one file."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from shlex import quote
from string import Template

import numpy as np
from plotly.offline import get_plotlyjs

from dadmm.core.arguments import program
from dadmm.core.errors import ConfigError, listed
from dadmm.core.version import __version__
from dadmm.runs.config import words_of
from dadmm.runs.settings import IN_MEMORY
from dadmm.runs.stored import StoredRun
from dadmm.show import html, network, outcome, panels, style
from dadmm.show.figure import MOST_POINTS, Panel, said, thinned
from dadmm.show.html import Page, Table, number, paragraph, table, text
from dadmm.show.report import LABELS
from dadmm.timing import waiting
from dadmm.timing.replay import Trace

SCRIPTS = ("plots.js", "network.js", "cursor.js")
VERDICTS = {
    "certified": "The nodes agree, and the distance of the result from the solution "
    "for all rows in one place is bounded.",
    "stationary": "The nodes agree on one model, and their gradients cancel.",
    "stopped": "The nodes meet the stopping rule; no bound on the error is known.",
    "not converged": "The nodes do not meet the stopping rule.",
    "max_iter": "The run did all iterations that were asked for.",
}
NO_ROWS = (
    "There are no rows of iterations. --record records them; it is the default up to "
    "1,000 nodes. A run that is going may not have written any yet."
)
MEDIANS = (
    "Lines are medians over the nodes, bands reach from the smallest to the largest "
    "node. "
)
PHASE_WORDS = (
    "Solve is a node's own problem, exchange is messages and waiting, update is "
    "multipliers and penalties, observe is callbacks and records. Bytes count the "
    "messages between neighbours in the iterations, without opening messages."
)
FEW_ROWS, MOST_ROWS = 12, 30  # of a table, by iteration and by node
MOST_HOSTS = 20
LEFT_OUT = ("out", "overwrite", "quiet", "report")  # of the command


def build(runs: Sequence[StoredRun], every: float = 0) -> str:
    """Return the page of some runs, without the first line of the file.

    It loads itself again after ``every`` seconds, unless that is 0.
    """
    page = Page(runs)
    badge, rule = "", ""
    if not page.is_comparison:
        found, config = runs[0].summary, runs[0].config
        why = found.get("why") or ""
        rule = VERDICTS.get(found.get("status", ""), "")
        rule += f" {why[0].upper()}{why[1:]}." if why else ""
        rule += f" Rule {config.stopping}, tolerance {config.tolerance:g}."
        badge = outcome.badge(runs[0])
    top = f"<h1>{badge} {text(panels.subject(runs))}</h1>{paragraph(rule)}"
    top += outcome.top(page) + '<nav aria-label="Sections"><ul>'
    parts = ""
    for name, (words, section) in SECTIONS.items():
        top += f'<li><a href="#{name}">{words}</a></li>'
        parts += (
            f'<section id="{name}" aria-labelledby="{name}-title">'
            f'<h2 id="{name}-title">{words}</h2>{section(page)}</section>'
        )
    return _whole(page, panels.title(runs), f"{top}</ul></nav>", parts, every)


def build_comparison(
    about: str, cells: Sequence[Sequence[str]], errors: Mapping[str, Sequence[Panel]]
) -> str:
    """Return the page of methods that were compared: a table, and errors by graph."""
    page, (head, *rows) = Page([]), cells
    parts = table(head, rows, "Medians over the seeds, and quartiles", "sortable")
    for x, found in errors.items():
        over = f"Error over {LABELS.get(x, f'seconds on {x}')}"
        parts += f"<h2>{text(over)}</h2>{page.panels(found)}"
    for figure in page.figures:
        figure["layout"] |= {"showlegend": True, "height": 360}
    title = "Methods compared"
    return _whole(page, title, f"<h1>{title}</h1>{paragraph(about)}", parts)


def _whole(page: Page, title: str, top: str, parts: str, every: float = 0) -> str:
    """Return the file of a page; the browser loads nothing, and runs its scripts only.

    A script must not end its element early.
    """
    plotly = get_plotlyjs().replace("</script", "<\\/script").replace("<!--", "<\\!--")
    own = "".join(map(html.content, SCRIPTS))
    hashes = [b64encode(sha256(code.encode()).digest()) for code in (plotly, own)]
    data = {"figures": page.figures, "network": page.network, "costs": page.costs,
            "every": every}  # fmt: skip
    return Template(html.fragment("page.html")).substitute(
        allowed=" ".join(f"'sha256-{value.decode()}'" for value in hashes),
        title=text(title), style=style.stylesheet() + html.content("page.css"), top=top,
        cursor=html.fragment("cursor.html") if page.recorded else "", parts=parts,
        version=text(__version__), data=embedded(data), plotly=plotly, own=own,
    ) + "\n"  # fmt: skip


def embedded(data: object) -> str:
    """Return JSON that may stand in a script element, whatever its strings are."""
    found = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        found = found.replace(char, f"\\u{ord(char):04x}")
    return found


def _convergence(page: Page) -> str:
    """Return objective, criteria of the stopping rule, and angles."""
    runs = page.recorded
    if not runs:
        return paragraph(NO_ROWS)
    found = panels.convergence(runs, MOST_POINTS, page.runs)
    longest = max(run.n_iterations for run in runs)
    words = MEDIANS + said(len(thinned(longest, MOST_POINTS)), longest, "iterations")
    for run in runs:  # bytes and seconds at the points of the curves
        rows = thinned(run.n_iterations, MOST_POINTS)
        costs = panels.cumulative(run)
        page.costs.append({name: html.packed(own[rows]) for name, own in costs.items()})

    def medians(run: StoredRun) -> Table:
        k = runs.index(run)
        curves = {panel.title: panel.curves[k] for panel in found if not panel.note}
        t = next((curve.x for curve in curves.values()), np.empty(0))
        rows = [
            [f"{t[row]:,}", *(number(float(curve.y[row])) for curve in curves.values())]
            for row in thinned(len(t), FEW_ROWS)
        ]
        return "medians over the nodes", ["iteration", *curves], rows

    drawn = (
        page.legend(runs) + html.fragment("axes.html") + page.panels(found, "criteria")
    )
    return drawn + paragraph(words) + page.tables(runs, medians)


def _cost(page: Page) -> str:
    """Return traffic and time: bytes, phases, and who waited for whom."""
    runs = page.recorded
    if not runs:
        return paragraph(NO_ROWS)
    found = panels.traffic(runs, page.is_comparison, page.runs)
    lines = list[str]()
    if not page.is_comparison:
        (run,) = runs
        try:
            if run.is_going:
                lines = ["Waiting times are estimated when the run ends."]
            else:
                waited = waiting.waiting(Trace.of(run))
                name, ends = "Who waited for whom (estimate)", ("Waited for", "Node")
                found.append(panels.edge_map(name, run, waited.by_edge, "s", ends))
                lines = waiting.table(waited).split("\n")
        except ConfigError as error:
            lines = [f"Waiting times are not known: {error}."]
    tables = page.tables(runs, _by_node)
    return page.panels(found) + html.facts(lines) + paragraph(PHASE_WORDS) + tables


def _by_node(run: StoredRun) -> Table:
    """Return messages, bytes and seconds by node."""
    sums = {name: run.column(name).sum(axis=0) for name in ("messages", "bytes")}
    spent = {phase: own.sum(axis=0) for phase, own in panels.seconds(run).items()}
    order = np.argsort(-np.sum([*spent.values()], axis=0), kind="stable")[:MOST_ROWS]
    rows = [
        [f"node {i}", *(f"{own[i]:,.0f}" for own in sums.values()),
         *(number(float(own[i]), 3) for own in spent.values())]
        for i in order
    ]  # fmt: skip
    few = said(len(rows), run.topology.n_nodes, "nodes")
    words = f"What a node sent, and its seconds by phase. {few}"
    return words, ["node", *sums, *spent], rows


def _about(page: Page) -> str:
    """Return settings, versions and hosts, and the commands that repeat the runs."""
    runs = page.runs
    commands = "".join(
        f"<h3>{text(page.titled('Repeat the run', run))}</h3>"
        f'<pre class="command">{text(command(run))}</pre>'
        for run in runs
    )
    if page.is_comparison:
        commands = html.details("Commands that repeat the runs", commands)
    settings = html.side_by_side([run.config.applied() for run in runs])
    differ = [row for row in settings if len(set(map(str, row[1:]))) > 1]
    names = [page.name(run) for run in runs] if page.is_comparison else ["value"]
    head, facts = ["setting", *names], html.side_by_side([_facts(run) for run in runs])
    every = table(head, settings, "Settings that applied")
    versions = table(["what", *names], facts, "Versions")
    return (
        commands
        + (table(head, differ, "Settings that differ") if differ else "")
        + html.details(f"{len(settings)} settings applied", every)
        + html.details("Versions and hosts", versions)
    )


def command(run: StoredRun) -> str:
    """Return the command that repeats a run, in the folder where it was started."""
    if run.config.data == IN_MEMORY:
        return "dadmm.solve, with the problems of the Python program that saved it"
    left_out = (*LEFT_OUT, "nodes") if run.summary.over_mpi else LEFT_OUT
    words = [f"mpiexec -n {run.config.nodes} " * run.summary.over_mpi + program("run")]
    for name, value in run.config.chosen().items():
        if name not in left_out:  # a float has all of its digits
            words += map(quote, words_of(name, value))
    return " ".join(words)


def _facts(run: StoredRun) -> dict[str, str]:
    """Return the folder, versions and hosts of a run."""
    found = {"folder": str(run.folder)} | (run.summary.get("versions") or {})
    if run.summary.get("mpi_library"):
        found["MPI"] = run.summary["mpi_library"]
    if hosts := run.summary.get("hosts"):
        words = [f"{name} ({count})" for name, count in hosts.items()]
        found["hosts (processes)"] = listed(words, MOST_HOSTS)
    return found


SECTIONS: dict[str, tuple[str, Callable[[Page], str]]] = {
    "results": ("Results", outcome.results),
    "convergence": ("Convergence", _convergence),
    "network": ("Network", network.section),
    "cost": ("Traffic and time", _cost),
    "settings": ("Settings and versions", _about),
}
