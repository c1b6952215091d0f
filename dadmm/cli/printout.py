"""The report that a run prints."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from dadmm.core.arguments import program
from dadmm.core.errors import printable
from dadmm.penalty import SCHEMES
from dadmm.runs.config import RunConfig

LEAST_ANGLE = 1e-4  # degrees; a smaller bound is printed as this
LITTLE = 0.1  # difference of two components that determines the subspace hardly
WIDEST = 60  # characters of a name
SHOWN, LARGEST = 12, 8  # print up to SHOWN coefficients, else the LARGEST
ENDINGS = {
    "max_iter": "max_iter reached",
    "max_seconds": "max_seconds reached",
    "no_minimum": "the objective has no minimum; stopped",
    "signal": "stopped by a signal",
    "output": "results could not be written",
}
SENT_FOR_UNITS = (
    "besides parameters, a node sent to its neighbours sums for the units: number and "
    "sum of its rows, squares about their mean, and what its best components leave"
)
SCORES = {
    "r2": "R^2",
    "rmse": "RMSE",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "auc": "AUC",
    "deviance_explained": "explained fraction of the deviance",
    "explained_variance": "explained fraction of the variance",
}


def _traffic(summary: dict[str, Any]) -> str:
    """Return the line about messages."""
    outside, inside = summary["outside_bytes"], summary["bytes"]
    text = f"{summary['messages']:,} messages between neighbours, {inside:,} bytes"
    if summary["silent_messages"]:
        text += f"; {summary['silent_messages']:,} without payload"
    if summary["lost_payloads"]:
        text += f"; {summary['lost_payloads']:,} payloads lost"
    if summary["collectives"]:
        own = summary["collective_bytes"]
        text += f"; {summary['collectives']:,} collectives, {own:,} bytes"
        inside += own
    if summary["outside_calls"]:
        text += (
            f"; set-up and end: {outside:,} bytes; "
            f"{inside + outside:,} bytes in the whole run"
        )
    return text


def _penalties(config: RunConfig, summary: dict[str, Any]) -> list[str]:
    """Return the lines about penalties and budgets."""
    found, seconds = summary["penalties"], summary["seconds"]["curvature"]
    if "eta" not in found:
        return []

    def span(name: str) -> str:
        least, most = (f"{value:.2g}" for value in found[name])
        return least if least == most else f"{least} to {most}"

    text = f"{found['edges']:,} edge ends: eta {span('eta0')} at the start"
    if found["eta"] == found["eta0"] and not SCHEMES[config.scheme].is_constant:
        text += ", and again at the end: the scheme has set them back"
    else:
        text += f", {span('eta')} at the end"
    if "raised" in found:
        raised, used_up = found["raised"], found["used_up"]
        text += (
            f"; {found['changed']:,} changed; spent {span('spent')} of their budgets, "
            f"{raised:,} budget{'s' * (raised != 1)} raised, {used_up:,} used up"
        )
    lines = [text]
    if found["guessed"]:
        lines.append(
            f"no curvature was found for {found['guessed']:,} of them, whose eta "
            "starts at 10"
        )
    if seconds >= 1.0:
        lines.append(
            f"measuring curvatures for the first penalties took {seconds:.1f} s; "
            "--eta0 with a number measures none"
        )
    return lines


def at_most(number: float) -> str:
    """Return a number of two digits that is at least this one."""
    text = f"{number:.1e}"
    if float(text) < number:
        text = f"{number + 0.06 * 10.0 ** math.floor(math.log10(number)):.1e}"
    return text


def with_bound(value: float, bound: float) -> tuple[str, str]:
    """Return a value and the bound on its error as text.

    The value has as many digits as the bound deserves, at least 6. The bound includes
    the rounding of the value.
    """
    text = f"{value:.6g}"
    for digits in range(7, 18):
        if abs(float(text) - value) <= 0.01 * bound:
            break
        text = f"{value:.{digits}g}"
    return text, at_most(bound + abs(float(text) - value))


def _ending(config: RunConfig, summary: dict[str, Any], time: str) -> list[str]:
    """Return the lines about the status of the run."""
    status, why, reason = summary["status"], summary["why"], summary["reason"]
    rule = f"(rule {config.stopping}, tolerance {config.tolerance:g})"
    if status == "certified":
        how = "" if reason == "converged" else f": {ENDINGS[reason]}"
        return [f"certified (tolerance {config.tolerance:g}){how} {time}"]
    if status == "stopped":
        what = "known to be stationary" if config.has_subspace else "certified"
        return [f"stopped {rule} {time}", f"not {what}: {why}"]
    if status == "stationary":
        return [f"stationary {rule} {time}"]
    if status == "max_iter":
        return [f"done as asked: max_iter reached, tolerance 0, {time}"]
    lines = [f"NOT converged {rule}: {ENDINGS[reason]} {time}"]
    if reason == "no_minimum":
        lines.append(f"{why}; larger coefficients then always fit better")
    return lines


def _consensus(summary: dict[str, Any]) -> str:
    """Return the line about the distance of the nodes from the solution."""
    found = summary["consensus"]
    error = at_most(found["error"])
    if found["by"] == "part":
        return (
            f"nodes agree to {error} in every part of theta, relative to its length "
            f"(worst: {found['where']})"
        )
    size = "its size"
    if summary["status"] == "certified":
        size += ", or to its bound if that is larger"
    return (
        f"nodes agree to {error} in every coefficient, relative to {size} "
        f"(worst: {found['where']})"
    )


def _start(config: RunConfig, summary: dict[str, Any]) -> list[str]:
    """Return the lines about a start from merged axes."""
    found = summary["start"]
    if found["init"] != "merged":
        return []
    angle = found["angle_to_result_degrees"]
    M = config.n_components
    lines = [f"the merged axes are {angle:.2g} degrees from the result"]
    if found["rounds"]:
        plural = "s" if found["rounds"] > 1 else ""
        lines[0] += f"; {found['rounds']} round{plural} completed missing entries"
    if found["gap"] < LITTLE:
        lines.append(
            f"components {M} and {M + 1} differ by {found['gap']:.1%} in variance, so "
            "the data hardly determine the subspace"
        )
    return lines


def _subspace(summary: dict[str, Any]) -> list[str]:
    """Return the line about the angle to the principal axes of all rows."""
    found = summary["subspace"]
    if found is None:
        return []
    rows = "the remaining rows" if summary["lost_nodes"] else "all rows"
    if found["why_not"]:
        return [f"no bound on the angle to the subspace of {rows}: {found['why_not']}"]
    angle = float(at_most(max(found["within_degrees"], LEAST_ANGLE)))
    return [
        f"every node's subspace is within {angle:.2g} degrees of the principal "
        f"subspace of {rows}"
    ]


def _accuracy(summary: dict[str, Any]) -> list[str]:
    """Return the lines about the objective and the bound on its error."""
    objective, found = summary["objective"], summary["certificate"]
    if objective is None:
        return []
    if found is None:
        return [f"objective {objective:.6g}"]
    lines = []
    if found["gap"] is not None:
        value, gap = with_bound(objective, found["gap"])
        lines.append(f"objective {value}, at most {gap} above the minimum")
    elif found.get("within") and found["lower_by"] is not None:
        value, gap = with_bound(objective, found["lower_by"])
        lines.append(
            f"objective {value}; no point within {found['within']:.3g} of the solution "
            f"is lower by more than {gap}"
        )
    else:
        lines.append(f"objective {objective:.6g}")
    n_open = found["open_directions"]
    if n_open:
        lines.append(
            f"the data leave {n_open} direction{'s' * (n_open != 1)} open; "
            f"coefficients in {'it' if n_open == 1 else 'them'} have no bound"
        )
    if found["assumed"]:
        lines.append(f"assumed: {'; '.join(found['assumed'])}")
    return lines


def _rows(summary: dict[str, Any]) -> list[str]:
    """Return the line about the rows of the nodes."""
    counts = [*summary.get("rows_by_node", {}).values()]
    if not counts:
        return []
    shown = ", ".join(f"{n:,}" for n in counts)
    if len(counts) > SHOWN:
        shown = f"{min(counts):,} to {max(counts):,}"
    if len(counts) > 1 and len(set(counts)) == 1:
        return [f"{sum(counts):,} rows ({counts[0]:,} at each node)"]
    return [f"{sum(counts):,} rows ({shown} by node)"]


def scores(summary: dict[str, Any]) -> dict[str, str]:
    """Return the fit to the rows of all nodes: names of scores, and their values."""
    found, shown = summary.get("scores", {}), {}
    for key, name in SCORES.items():
        if found.get(key) is not None:
            error = found["auc_error"] if key == "auc" else 0.0
            bound = f" +- {at_most(error)}" if error else ""
            shown[name] = f"{found[key]:.4g}{bound}"
    return shown


def _scores(summary: dict[str, Any]) -> list[str]:
    """Return the line about the fit to the rows of all nodes."""
    shown = [f"{name} {value}" for name, value in scores(summary).items()]
    return [f"on these rows: {', '.join(shown)}"] if shown else []


def _gaps(summary: dict[str, Any]) -> list[str]:
    """Return the lines about rows that were dropped or filled."""
    lines = []
    for k, what in ((1, "dropped"), (2, "filled with the mean over all nodes")):
        counts = {row[0]: row[k] for row in summary.get("gaps", {}).get("nodes", [])}
        counts = {node: count for node, count in counts.items() if count}
        if counts:
            total, shown = sum(counts.values()), list(counts.items())[:SHOWN]
            words = ", ".join(f"{count} of node {node}" for node, count in shown)
            more = ", ..." if len(counts) > len(shown) else ""
            lines.append(
                f"{total} row{'s' * (total != 1)} with missing entries {what}: "
                f"{words}{more}"
            )
    return lines


def _coefficients(summary: dict[str, Any]) -> list[str]:
    """Return a line per coefficient; of many, only the largest and the intercept."""
    shown = summary.get("coefficients", {})
    if not shown:
        return []
    total, found = len(shown), summary["certificate"] or {}
    bounds = found["coefficients"] if found.get("radius") is not None else None
    what = "mean over the nodes" if bounds is None else "+- the bound on the error"
    if bounds is None and summary["status"] == "certified":
        what += "; only the objective has a bound"
    errors = summary.get("standard_errors", {})
    if errors:
        what += "; standard error"
    title = f"coefficients ({what}):"
    if total > SHOWN:
        nonzero = [name for name in shown if shown[name]] or list(shown)
        largest = sorted(nonzero, key=lambda name: -abs(shown[name]))[:LARGEST]
        names = [name for name in shown if name in {*largest, "intercept"}]
        shown = {name: shown[name] for name in names}
        title = f"the largest of {total} coefficients ({what}; all are in "
        title += "summary.json):"
    words = [printable(name, WIDEST) for name in shown]
    wide, lines = max(map(len, words)), []
    for word, (name, value) in zip(words, shown.items(), strict=True):
        line = f"  {word:<{wide}}  "
        if bounds is None:
            line += f"{value:.6g}"
        elif bounds[name] is None:
            line += f"{value:.6g} (open)"
        else:
            line += " +- ".join(with_bound(value, bounds[name]))
        lines.append(line)
    if errors:
        wide = max(map(len, lines))
        known = [errors[name] for name in shown]
        lines = [
            line if error is None else f"{line:<{wide}}  {error:.3g}"
            for line, error in zip(lines, known, strict=True)
        ]
    return [title, *lines, *comparison(summary)]


def comparison(summary: dict[str, Any]) -> list[str]:
    """Return what coefficients of categories, or of classes, compare with."""
    lines, positive = [], summary.get("positive_class")
    if baseline := summary.get("baseline"):
        words = [printable(f"{k}={word}", WIDEST) for k, word in baseline.items()]
        more = f" and {len(words) - LARGEST} others" if len(words) > LARGEST else ""
        lines.append(f"categories compare with {', '.join(words[:LARGEST])}{more}")
    if isinstance(positive, str):
        word = printable(positive, WIDEST)
        lines.append(f"a positive coefficient raises the probability of {word}")
    return lines


def _is_drawn(summary: dict[str, Any]) -> bool:
    """Return whether a run in units started from drawn parameters."""
    drawn = summary["start"]["init"] != "merged"
    return bool(summary["coordinates"] == "units" and drawn)


def _coordinates(summary: dict[str, Any]) -> str:
    """Return the coordinates of the run as text."""
    name = summary["coordinates"]
    return {"metric": "in the metric", "units": "in units"}.get(
        name, f"in {name} coordinates"
    )


def _merging(summary: dict[str, Any]) -> list[str]:
    """Return the line about a start from merged axes, which solves the problem."""
    if summary["start"]["init"] != "merged":
        return []
    count = summary["iterations"]
    done = f"{count} iteration{'s' * (count != 1)}"
    ended = summary["status"] == "stationary"
    return [
        f"set-up merged summaries of rows over a tree ({summary['tree_bytes']:,} bytes "
        "of sums in set-up and at the end); "
        + (f"{done} confirmed the result" if ended else f"{done} followed")
    ]


def _report_command(folder: Path) -> str:
    """Return the command that makes a page; "" if a launch command makes it."""
    from shlex import quote

    command = os.environ.get("DADMM_REPORT_COMMAND", program("report"))
    return f"{command} {quote(str(folder))}" if command else ""


def _resume_command(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the command that resumes a run; a launch command may name its own."""
    from shlex import quote  # needed by runs that did not converge only

    place = quote(str(folder))
    if command := os.environ.get("DADMM_RESUME_COMMAND"):
        return f"{command} {place}"
    own = f" --problem {config.problem}" if ":" in config.problem else ""
    over_mpi = "one process" not in summary["mpi_library"]
    many = f"mpiexec -n {summary['n_nodes']} " if over_mpi else ""
    return f"{many}{program('run')}{own} --resume {place}"


def text(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report as text."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes, start = summary["n_nodes"], summary["resumed_after"]
    since = f" since it was resumed after iteration {start}" if start else ""
    phases = ("solve", "exchange", "update", "observe")
    loop = [f"{phase} {seconds[phase]:.2f}" for phase in phases]
    time = (
        f"after {summary['iterations']} iterations, {seconds['total']:.2f} s"
        f"{since} (a node's loop: {', '.join(loop)})"
    )
    lost = ", ".join(map(str, summary["lost_nodes"]))
    lines = [
        *_merging(summary),
        f"{config.problem} by {config.scheme} {_coordinates(summary)} on "
        f"{config.topology}, {nodes} node{'s' * (nodes != 1)}; MPI: "
        f"{summary['mpi_library']}",
        *_ending(config, summary, time),
        *([f"WITHOUT the nodes that failed ({lost}) and their data"] if lost else []),
        *([] if summary["reason"] == "no_minimum" else [summary["waited_for"]]),
        *_penalties(config, summary),
        _traffic(summary),
        *([SENT_FOR_UNITS] if config.data is None and _is_drawn(summary) else []),
        _consensus(summary),
    ]
    for name, what in (
        ("angle_to_truth_degrees", "the true subspace"),
        ("angle_to_centralised_degrees", "the centralised solution"),
    ):
        if name in found:
            lines.append(f"largest angle to {what}: {found[name]:.3f} degrees")
    if "missing" in found:
        lines.append(
            f"{found['missing']:.1%} of the entries are missing; imputed-*.npz have "
            "the imputed samples of each node; there is no centralised solution"
        )
    elif config.has_subspace and not config.compares:
        lines.append(
            "not compared with the centralised solution (use --compare-centralised)"
        )
    lines += _subspace(summary) + _start(config, summary) + _accuracy(summary)
    lines += _rows(summary) + _gaps(summary) + _scores(summary)
    lines += _coefficients(summary)
    lines.append(f"results in {folder}")
    command = _report_command(folder) if config.data is None else ""
    if command and config.record_edges:
        lines.append(f"a page for your browser: {command}")
    over = summary["converged"] or summary["reason"] == "no_minimum"
    if config.checkpoint and not over and not summary["lost_nodes"]:
        more = " --max-iter N" if summary["reason"] == "max_iter" else ""
        lines.append(f"resume with: {_resume_command(config, summary, folder)}{more}")
    if summary["advice"]:
        lines.append(summary["advice"])
    return "\n".join(map(printable, lines))
