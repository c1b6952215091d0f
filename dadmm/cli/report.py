"""The report that a run prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dadmm.cli.config import RunConfig

SHOWN, LARGEST = 12, 8  # print up to SHOWN coefficients, else the LARGEST
ENDINGS = {
    "converged": "converged",
    "max_iter": "NOT converged: max_iter reached",
    "max_seconds": "NOT converged: max_seconds reached",
    "signal": "NOT converged: stopped by a signal",
    "output": "NOT converged: results could not be written",
}


def notice_of_gathering(world: Any, config: RunConfig) -> str | None:
    """Return a notice that rank 0 gathers summaries of a user's rows, if it does."""
    of_user = config.data is not None and world.comm is not None
    if not (of_user and config.has_subspace and config.compares):
        return None
    return (
        "compare_centralised: rank 0 gathers each node's number of rows, column means "
        "and scatter factor; if a node has no more rows than columns, these are as "
        "informative as its rows"
    )


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


def _failures(summary: dict[str, Any]) -> list[str]:
    """Return the line about failed nodes, if there are any."""
    names = ", ".join(map(str, summary["lost_nodes"]))
    line = f"WITHOUT the nodes that failed ({names}) and their data"
    return [line] if names else []


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


def text(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """Return the report as text."""
    seconds, found = summary["seconds"], summary["metrics"]
    nodes = summary["n_nodes"]
    start = summary["resumed_after"]
    since = f" since the resume at iteration {start}" if start else ""
    lines = [
        f"{config.problem} by {config.scheme} on {config.topology}, "
        f"{nodes} node{'s' * (nodes != 1)}; MPI: {summary['mpi_library']}",
        f"{ENDINGS[summary['reason']]} after {summary['iterations']} iterations, "
        f"{seconds['total']:.2f} s{since} (a node's loop: "
        f"solve {seconds['solve']:.2f}, exchange {seconds['exchange']:.2f}, "
        f"update {seconds['update']:.2f}, observe {seconds['observe']:.2f})",
        *_failures(summary),
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
    if "objective_gap" in found:
        lines.append(
            f"objective {found['objective']:.6g}, within about "
            f"{found['objective_gap']:.1e} of the optimum"
        )
    lines += _coefficients(summary.get("coefficients", {}))
    lines.append(f"results in {folder}")
    if config.checkpoint and not summary["converged"] and not summary["lost_nodes"]:
        more = " --max-iter N" if summary["reason"] == "max_iter" else ""
        lines.append(f"resume with --resume {folder}{more}")
    if summary["advice"]:
        lines.append(summary["advice"])
    return "\n".join(lines)
