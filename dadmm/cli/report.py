"""The report that a run prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dadmm.cli.config import RunConfig
from dadmm.exchange.launch_link import rank_and_size

SHOWN, LARGEST = 12, 8  # print up to SHOWN coefficients, else the LARGEST
ENDINGS = {
    "max_iter": "max_iter reached",
    "max_seconds": "max_seconds reached",
    "signal": "stopped by a signal",
    "output": "results could not be written",
}


def _traffic(summary: dict[str, Any]) -> str:
    """Return the line about messages."""
    text = f"{summary['messages']:,} messages, {summary['bytes']:,} bytes"
    if summary["silent_messages"]:
        text += f"; {summary['silent_messages']:,} without payload"
    if summary["lost_payloads"]:
        text += f"; {summary['lost_payloads']:,} payloads lost"
    if summary["outside_calls"]:
        text += (
            f"; set-up and end: {summary['outside_calls']:,} calls of MPI, "
            f"{summary['outside_bytes']:,} bytes"
        )
    return text


def _coefficients(coefficients: dict[str, float]) -> list[str]:
    """Return a line per coefficient; of many, only the largest and the intercept."""
    shown, total = coefficients, len(coefficients)
    title = "coefficients (mean over the nodes):"
    if total > SHOWN:
        largest = sorted(shown, key=lambda name: -abs(shown[name]))[:LARGEST]
        names = [name for name in shown if name in {*largest, "intercept"}]
        shown = {name: shown[name] for name in names}
        title = f"the largest of {total} coefficients (mean over the nodes; all are in "
        title += "summary.json):"
    wide = max(map(len, shown), default=0)
    lines = [f"  {name:<{wide}}  {value:.6g}" for name, value in shown.items()]
    return [title, *lines] if lines else []


def _resume_command(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the command that resumes a run; a launch command may name its own."""
    from shlex import quote  # needed by runs that did not converge only

    place = quote(str(folder))
    if command := os.environ.get("DADMM_RESUME_COMMAND"):
        return f"{command} {place}"
    own = f" --problem {config.problem}" if ":" in config.problem else ""
    many = f"mpiexec -n {summary['n_nodes']} " if rank_and_size() else ""
    return f"{many}python -m dadmm.run{own} --resume {place}"


def text(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report as text."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes, start = summary["n_nodes"], summary["resumed_after"]
    since = f" since it was resumed after iteration {start}" if start else ""
    phases = ("solve", "exchange", "update", "observe")
    loop = [f"{phase} {seconds[phase]:.2f}" for phase in phases]
    rule = f"(rule {config.stopping}, tolerance {config.tolerance:g})"
    ending, lost = f"converged {rule}", ", ".join(map(str, summary["lost_nodes"]))
    if not summary["converged"]:
        ending = f"NOT {ending}: {ENDINGS[summary['reason']]}"
    lines = [
        f"{config.problem} by {config.scheme} on {config.topology}, "
        f"{nodes} node{'s' * (nodes != 1)}; MPI: {summary['mpi_library']}",
        f"{ending} after {summary['iterations']} iterations, {seconds['total']:.2f} s"
        f"{since} (a node's loop: {', '.join(loop)})",
        *([f"WITHOUT the nodes that failed ({lost}) and their data"] if lost else []),
        summary["waited_for"],
        _traffic(summary),
        f"nodes agree to {found['consensus_error']:.1e} (relative)",
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
    if found.get("objective_gap_estimate") is not None:
        lines.append(
            f"objective {found['objective']:.6g}; estimated distance from the optimum "
            f"{found['objective_gap_estimate']:.1e} (not a bound)"
        )
    lines += _coefficients(summary.get("coefficients", {}))
    lines.append(f"results in {folder}")
    if config.checkpoint and not summary["converged"] and not summary["lost_nodes"]:
        more = " --max-iter N" if summary["reason"] == "max_iter" else ""
        lines.append(f"resume with: {_resume_command(config, summary, folder)}{more}")
    if summary["advice"]:
        lines.append(summary["advice"])
    return "\n".join(lines)
