"""What a run has found: the entries of summary.json, and the text that it prints."""

from __future__ import annotations

import decimal
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.state import PHASES
from dadmm.core.arguments import program
from dadmm.core.documents import Table
from dadmm.core.errors import listed, printable
from dadmm.core.version import __version__
from dadmm.runs.config import RunConfig
from dadmm.solver.ending import advise
from dadmm.solver.result import Result

LEAST_ANGLE = 1e-4  # degrees; a smaller bound is printed as this
LEAST_PERCENT = 1e-3  # a smaller error is printed as this
UP = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)
ROUNDING = 1e-12  # a smaller disagreement says nothing about a part of theta
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
OWN = ("status", "converged", "why", "reason", "iterations", "coordinates")
TRAFFIC = ("messages", "bytes", "collectives", "collective_bytes", "is_broadcast")
ANGLES = {  # of the history, see `cli.targets`; in degrees
    "angle_to_truth": "the true subspace",
    "angle_to_centralised": "the centralised solution",
}
SCORES = {
    "r2": "R^2",
    "rmse": "RMSE",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "auc": "AUC",
    "deviance_explained": "explained fraction of the deviance",
    "explained_variance": "explained fraction of the variance",
}
PACKAGES = ("numpy", "mpi4py", "scipy", "networkx", "threadpoolctl")
Lines = Iterator[tuple[str, str]]  # of the printed text: a name and words each


class Named(NamedTuple):
    """Names for what was fitted; coefficients are in the units of the table."""

    entries: list[str]  # a name for each entry of theta
    coefficients: Mapping[str, float | None] = {}  # of a linear problem
    bounds: Mapping[str, float | None] = {}  # on the errors of certified coefficients


class Summary(dict[str, Any]):
    """The entries of summary.json; `text` is what the run prints."""

    @classmethod
    def of(
        cls, result: Result, named: Named, spent: Mapping[str, float], X: Any = None
    ) -> Summary:
        """Return what a result, on rank 0, says by itself.

        ``spent`` has the seconds in total and in set-up, before the first iteration;
        ``X`` some rows, which advice looks at.
        """
        found, bound, traffic = result.start, result.subspace_bound, result.traffic
        start: Table = {"init": result.ending.init}
        if found is not None:
            start |= {"angle_to_result_degrees": found.angle, "gap": found.gap}
            start |= {"strictness": found.strictness, "rounds": found.rounds}
        subspace = None
        if bound is not None:
            subspace = {"within_degrees": known(bound.angle), "why_not": bound.why}
        consensus, coefficients = _consensus(result, named), dict(named.coefficients)
        loaded = {name: sys.modules[name] for name in PACKAGES if name in sys.modules}
        versions = {"dadmm": __version__, "python": sys.version.split()[0]}
        versions |= {name: str(package.__version__) for name, package in loaded.items()}
        now, ever = (
            {phase: float(own.mean()) for phase, own in each._asdict().items()}
            for each in (result.seconds, result.seconds_of_all_sessions)
        )
        return cls(
            ({"coefficients": coefficients} if coefficients else {})
            | {name: getattr(result, name) for name in OWN}
            | {name: getattr(traffic, name) for name in TRAFFIC},
            stopping=result.ending.summary(),  # the criterion met last, or not met
            waited_for=result.ending.words(result.reason == "converged"),
            penalties=_penalties(result),
            objective=known(result.objective),  # at the solution
            certificate=_certificate(result, named),
            start=start,
            subspace=subspace,
            consensus=consensus,
            metrics={"consensus_error": consensus["error"]},
            advice=advise(result, X),
            versions=versions,
            record_every=1,  # iterations from a row to the next
            outside_calls=0,  # of set-up and end
            outside_bytes=0,
            n_nodes=result.topology.n_nodes,
            lost_nodes=list(result.lost),
            silent_messages=traffic.silent,  # a header without payload
            lost_payloads=traffic.lost,
            tree_bytes=int(traffic.tree_bytes.sum()),  # of sums over a tree
            # since the run began or was resumed; phases: mean over the nodes
            seconds={
                **spent,
                **now,
                "curvature": result.curvature_seconds,  # for the first penalties
                "of_all_sessions": ever,
            },
        )

    @property
    def over_mpi(self) -> bool:
        """Whether each node was a process."""
        return "one process" not in self.get("mpi_library", "")

    def text(self, config: RunConfig, folder: Path) -> str:
        """Return what the run prints: the outcome, entries in two columns, commands."""
        entries = [
            f"  {name:<12} {words}".rstrip()
            for part in (
                self._problem(config), self._subspace(config), self._accuracy(),
                self._coefficients(config), self._course(config),
            )
            for name, words in part
        ]  # fmt: skip
        lines = [*self._ending(config), *entries, *self._commands(config, folder)]
        return "\n".join(map(printable, lines))

    def scores(self) -> dict[str, str]:
        """Return the names of scores on the rows of all nodes, and their values."""
        found, shown = self.get("scores", {}), {}
        for key, name in SCORES.items():
            if found.get(key) is not None:
                error = found.get("auc_error") if key == "auc" else None
                bound = f" (to {at_most(error)})" if error else ""
                shown[name] = f"{found[key]:.4g}{bound}"
        return shown

    def comparison(self) -> Iterator[str]:
        """Yield what coefficients of categories, or of classes, compare with."""
        if baseline := self.get("baseline"):
            words = [printable(f"{k}={word}", WIDEST) for k, word in baseline.items()]
            yield f"categories compare with {listed(words, LARGEST)}"
        positive = self.get("positive_class")
        if isinstance(positive, str):
            word = printable(positive, WIDEST)
            yield f"a positive coefficient raises the probability of {word}"

    def _ending(self, config: RunConfig) -> Iterator[str]:
        """Yield the outcome, and why it is not a better one."""
        status, why, reason = self["status"], self["why"], self["reason"]
        seconds = f"{self['seconds']['total']:.2f} s"
        if start := self["resumed_after"]:
            seconds += f" since it was resumed after iteration {start}"
        time = f"after {self['iterations']} iterations, {seconds}"
        rule = f"(rule {config.stopping}, tolerance {config.tolerance:g})"
        if status == "certified":
            how = "" if reason == "converged" else f": {ENDINGS[reason]}"
            yield f"certified{how} {time} (tolerance {config.tolerance:g})"
        elif status in ("stopped", "stationary"):
            yield f"{status} {time} {rule}"
        elif status == "max_iter":
            yield f"done as asked: max_iter reached, tolerance 0, {time}"
        else:
            yield f"NOT converged: {ENDINGS[reason]} {time} {rule}"
        if status == "stopped":
            what = "known to be stationary" if config.has_subspace else "certified"
            yield f"not {what}: {why}"
        elif reason == "no_minimum":
            yield f"{why}; larger coefficients then always fit better"
        if lost := ", ".join(map(str, self["lost_nodes"])):
            yield f"WITHOUT the nodes that failed ({lost}) and their data"

    def _commands(self, config: RunConfig, folder: Path) -> Iterator[str]:
        """Yield where the results are, and which commands may follow."""
        yield f"results in {folder}"
        page = os.environ.get("DADMM_REPORT_COMMAND", program("report"))
        if page and not config.report and config.data is None and config.record_edges:
            yield f"a page for your browser: {page} {quote(str(folder))}"
        reason = self["reason"]
        over = self["converged"] or reason == "no_minimum" or self["lost_nodes"]
        if config.checkpoint and not over:
            given = {"problem": config.problem, "scheme": config.scheme}
            own = "".join(f" --{k} {name}" for k, name in given.items() if ":" in name)
            many = f"mpiexec -n {self['n_nodes']} " if self.over_mpi else ""
            usual = f"{many}{program('run')}{own} --resume"
            command = os.environ.get("DADMM_RESUME_COMMAND") or usual
            more = " --max-iter N" if reason == "max_iter" else ""
            yield f"resume with: {command} {quote(str(folder))}{more}"
        if self["advice"]:
            yield self["advice"]

    def _problem(self, config: RunConfig) -> Lines:
        """Yield what was solved, and how many rows were used, dropped or filled."""
        nodes, ranks = _many(self["n_nodes"], "node"), self.get("ranks", 1)
        if 1 < ranks < self["n_nodes"]:
            nodes += f" on {_many(ranks, 'rank')}"
        names = {"metric": "the metric", "raw": "raw coordinates", "units": "units"}
        text = (
            f"{config.problem} by {config.scheme} in {names[self['coordinates']]} on "
        )
        yield "problem", f"{text}{config.topology}, {nodes}; MPI: {self['mpi_library']}"
        if counts := [*self.get("rows_by_node", {}).values()]:
            shown = ", ".join(f"{n:,}" for n in counts) + " by node"
            if len(counts) > 1 and len(set(counts)) == 1:
                shown = f"{counts[0]:,} at each node"
            elif len(counts) > SHOWN:
                shown = f"{min(counts):,} to {max(counts):,} by node"
            yield "rows", f"{sum(counts):,} ({shown})"
        if by_class := self.get("rows_by_class"):
            yield "classes", ", ".join(f"{k}: {n:,.6g}" for k, n in by_class.items())
        for k, what in ((1, "dropped"), (2, "filled with the mean over all nodes")):
            if gaps := [row for row in self.get("gaps", {}).get("nodes", []) if row[k]]:
                total = _many(sum(row[k] for row in gaps), "row")
                words = ", ".join(f"{row[k]} of node {row[0]}" for row in gaps[:SHOWN])
                more = ", ..." if len(gaps) > SHOWN else ""
                yield "gaps", f"{total} with missing entries {what}: {words}{more}"

    def _subspace(self, config: RunConfig) -> Lines:
        """Yield angles to other subspaces, and what is known of the merged axes."""
        measured, found, start = self["metrics"], self["subspace"], self["start"]
        for key, what in ANGLES.items():
            if (angle := measured.get(f"{key}_degrees")) is not None:
                yield "angle", f"at most {angle:.3f} degrees to {what}, at any node"
        if "missing" in measured:
            text = f"{measured['missing']:.1%} of the entries; imputed-*.npz have the "
            text += "imputed samples of each node; there is no centralised solution"
            yield "missing", text
        rows = "the remaining rows" if self["lost_nodes"] else "all rows"
        if found is not None and found["why_not"]:
            what = f"no bound on the angle to the subspace of {rows}"
            yield "angle", f"{what}: {found['why_not']}"
        elif found is not None:
            angle = least_angle(found["within_degrees"])
            what = f"the principal subspace of {rows}"
            yield "angle", f"at most {angle} degrees to {what}, at any node"
        if start["init"] == "merged":
            angle, rounds = start["angle_to_result_degrees"], start["rounds"]
            text = f"the merged axes are {angle:.2g} degrees from the result"
            more = f"; {_many(rounds, 'round')} completed missing entries"
            yield "axes", text + more * (rounds > 0)
            if start["gap"] < LITTLE:
                M = config.n_components
                text = f"components {M} and {M + 1} differ by {start['gap']:.1%} in "
                text += "variance, so the data hardly determine the subspace"
                yield "axes", text

    def _accuracy(self) -> Lines:
        """Yield the objective and the bound on its error, scores, and agreement."""
        objective, found = self["objective"], self["certificate"] or {}
        if objective is not None:
            text = f"{objective:.6g}"
            if found.get("gap") is not None:
                value, gap = with_bound(objective, found["gap"])
                text = f"{value}, at most {gap} above the minimum"
            elif found.get("within") and found["lower_by"] is not None:
                value, gap = with_bound(objective, found["lower_by"])
                text = f"{value}; no point within {found['within']:.3g} of the "
                text += f"solution is lower by more than {gap}"
            yield "objective", text
            if n_open := found.get("open_directions"):
                text = f"the data leave {_many(n_open, 'direction')} open; coefficients"
                text += f" in {'it' if n_open == 1 else 'them'} have no bound"
                yield "open", text
            if found.get("assumed"):
                yield "assumed", "; ".join(found["assumed"])
        if shown := [f"{name} {value}" for name, value in self.scores().items()]:
            yield "score", f"{', '.join(shown)}, on these rows"
        agreement, what = self["consensus"], "the length of any part of theta"
        if agreement["by"] == "coefficient":
            what = "the size of any coefficient"
            if self["status"] == "certified":
                what += ", or of its bound if that is larger"
        text = f"nodes differ by at most {at_most(agreement['error'])} of {what}"
        if agreement["error"] > ROUNDING:
            text += f" (worst: {agreement['where']})"
        yield "agreement", text

    def _coefficients(self, config: RunConfig) -> Lines:
        """Yield a line per coefficient, or of the largest; then errors and penalty."""
        if not (values := self.get("coefficients", {})):
            return
        shown, title = values, f"{len(values)}"
        found, errors = self["certificate"] or {}, self.get("standard_errors", {})
        bounds = found["coefficients"] if found.get("radius") is not None else {}
        is_certified = self["status"] == "certified"
        notes = ["standard error"] if errors else []
        if not bounds:
            notes.append("mean over the nodes")
            notes += ["only the objective has a bound"] * is_certified
        if len(values) > SHOWN:
            nonzero = [name for name in values if values[name]] or list(values)
            largest = sorted(nonzero, key=lambda name: -abs(values[name]))[:LARGEST]
            kept = {*largest, "intercept"}
            shown = {name: value for name, value in values.items() if name in kept}
            title = f"the largest of {len(values)}"
            notes.append("all are in summary.json")
        yield "coefficients", title + (f" ({'; '.join(notes)}):" if notes else ":")
        rows = []
        for name, value in shown.items():
            bound, error, text = bounds.get(name), errors.get(name), f"{value:.6g}"
            if bounds and bound is None:
                text += " (open)"
            elif bound is not None and not errors:
                text, _ = with_bound(value, bound)
            last = "" if error is None else f"{error:.3g}"
            rows.append((printable(name, WIDEST), text, last))
        first, second, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
        for name, text, last in rows:
            yield "", f"{name:<{first}}  {text:<{second}}  {last}"
        if known_bounds := {name: x for name, x in bounds.items() if x is not None}:
            error, of = worst_error(values, known_bounds, errors)
            relation = "below" if error.endswith("%") else "at most"
            how = "certified" if is_certified else "by its bound"
            yield "error", f"of the computation: {relation} {error} {of}, {how}"
        yield from self._alpha(config)
        yield from (("", line) for line in self.comparison())

    def _alpha(self, config: RunConfig) -> Lines:
        """Yield the penalty, and why coefficients have no standard errors."""
        alpha, errors, why = self.get("alpha"), self.get("standard_errors"), ""
        if not config.traits.has_errors:
            why = f"{config.problem} has no standard errors"
        elif alpha and not errors:
            why = "it shrinks the coefficients, so they have no standard errors "
            why += "(--alpha 0 gives them)"
        elif not errors and not self["converged"]:
            why = "no standard errors, because the run has not converged"
        if alpha is not None:
            none = ", which is none" * (alpha == 0)
            yield "alpha", f"{alpha:g}{none}{f'; {why}' if why else ''}"
        elif config.traits.has_errors and why:
            yield "", why

    def _course(self, config: RunConfig) -> Lines:
        """Yield how the run came to its result: criteria, penalties, bytes, seconds."""
        if self["reason"] != "no_minimum":
            yield "criteria", self["waited_for"].removeprefix("criterion ")
        if "eta" in self["penalties"]:
            yield "penalties", self._eta()
        shared, outside = self["collective_bytes"], self["outside_bytes"]
        text = f"{self['messages']:,} between neighbours, {self['bytes']:,} bytes"
        if self["silent_messages"]:
            text += f"; {self['silent_messages']:,} without payload"
        if self["lost_payloads"]:
            text += f"; {self['lost_payloads']:,} payloads lost"
        if self["collectives"]:
            text += f"; {self['collectives']:,} collectives, {shared:,} bytes"
        if self["outside_calls"]:
            total = self["bytes"] + shared + outside
            text += f"; set-up and end: {outside:,} bytes; {total:,} bytes in all"
        yield "messages", text
        if self["start"]["init"] == "merged":
            text = f"merged summaries of rows over a tree ({self['tree_bytes']:,} bytes"
            yield "set-up", f"{text} of sums in set-up and at the end)"
        found = self["seconds"]
        phases = ", ".join(f"{phase} {found[phase]:.2f}" for phase in PHASES)
        later = max(found["total"] - found["set_up"], 0.0)
        text = f"set-up {found['set_up']:.2f}, then {later:.2f}"
        yield "seconds", f"{text}; of a node in the iterations: {phases}"
        if (step := self["record_every"]) > config.record_every:
            text = f"history.csv would have more than 50 MB, so it has every {step}th "
            text += "iteration, with the bytes and seconds of those between"
            yield "history", text

    def _eta(self) -> str:
        found, seconds = self["penalties"], self["seconds"]["curvature"]

        def span(name: str) -> str:
            least, most = (f"{value:.2g}" for value in found[name])
            return least if least == most else f"{least} to {most}"

        text = f"eta of {found['edges']:,} edge ends: {span('eta0')} at the start, "
        text += f"{span('eta')} at the end"
        if "raised" in found:
            text += f"; {found['changed']:,} changed; spent {span('spent')} of their "
            text += f"budgets, {_many(found['raised'], 'budget')} raised, "
            text += f"{found['used_up']:,} used up"
        if found["guessed"]:
            text += f"; no curvature was found for {found['guessed']:,} of them, whose "
            text += "eta starts at 10"
        if seconds >= 1.0:
            text += f"; measuring curvatures took {seconds:.1f} s, and --eta0 with a "
            text += "number measures none"
        return text


def _many(count: int, what: str) -> str:
    """Return a number of things, such as "1 row" or "2 rows"."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def at_most(number: float) -> str:
    """Return a number of two digits that is at least this one."""
    return f"{float(UP.create_decimal(str(float(number)))):.1e}"


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


def worst_error(
    values: Mapping[str, float],
    bounds: Mapping[str, float],
    errors: Mapping[str, float | None],
) -> tuple[str, str]:
    """Return the largest error of the computation, and of what it is a part.

    Bounds are compared with the standard errors, or else with the coefficients. If one
    of these may be zero, the error is the largest bound itself.
    """
    what = "standard error" if errors else "coefficient"
    sizes = errors or {name: abs(value) for name, value in values.items()}
    ratios = [x / (sizes.get(name) or math.nan) for name, x in bounds.items()]
    if not all(ratio < 1.0 for ratio in ratios):  # NaN is not
        return at_most(max(bounds.values())), "in any coefficient"
    percent = float(at_most(max(LEAST_PERCENT, 100.0 * max(ratios))))
    return f"{percent:.2g} %", f"of every {what}"


def least_angle(degrees: float) -> str:
    """Return a bound on an angle in two digits, at least the smallest that is said."""
    return f"{float(at_most(max(degrees, LEAST_ANGLE))):.2g}"


def known(number: float) -> float | None:
    """Return a number; None if it is unknown or unbounded."""
    return float(number) if math.isfinite(number) else None


def _penalties(result: Result) -> Table:
    """Return the range of the penalties of all edges, and their budgets."""
    found, n_edges = result.penalties, len(result.topology.edges)  # directed
    if not n_edges:
        return {"edges": 0}

    def span(values: np.ndarray) -> list[float]:
        return [float(values.min()), float(values.max())]

    entries = {"edges": n_edges, "eta0": span(found.eta0), "eta": span(found.eta)}
    entries["guessed"] = int(found.guessed.sum())
    if found.budget.any():
        moved = (found.spent > 0.0) | (found.eta != found.eta0)  # some are reset
        entries["changed"] = int(moved.sum())
        entries["spent"] = span(np.minimum(found.spent, found.budget))  # paper: more
        entries["raised"] = int((found.raised > 0.0).sum())
        entries["used_up"] = int(found.used_up.sum())
    return entries


def _certificate(result: Result, named: Named) -> Table | None:
    """Return the bounds on the error of the solution; None without any."""
    found = result.certificate
    if found is None:
        return None
    entries: Table = {
        "gap": known(found.gap),
        "radius": known(found.radius),
        "coefficients": dict(named.bounds),
        "open_directions": found.open_directions,
        "assumed": list(found.assumed),
    }
    if result.coordinates == "raw":  # then theta is not transformed
        distance = float(f"{np.linalg.norm(result.solution):.3g}")  # as printed
        entries |= {"within": distance, "lower_by": known(found.lower_within(distance))}
    return entries


def _consensus(result: Result, named: Named) -> Table:
    """Return how far the nodes are from the solution, by what, and where.

    Coefficients are judged one by one: the largest distance of any node's value from
    the solution, over the largest value of any node, or over the bound of a certified
    result if that is larger. Else each part of theta is judged so, by lengths.
    """
    layout, shared = result.layout, result.layout.shared_size
    apart = np.abs(result.theta - result.solution)[:, :shared]
    sizes = np.abs(result.theta[:, :shared])
    if named.coefficients:
        names, by = named.entries, "coefficient"
        worst, scale = apart.max(axis=0), sizes.max(axis=0)
        if result.status == "certified" and result.certificate is not None:
            bounds = result.certificate.coefficients
            scale = np.where(np.isfinite(bounds), np.maximum(scale, bounds), scale)
    else:
        names, by = list(layout.names), "part"
        squares = [np.add.reduceat(x**2, layout.starts, axis=1) for x in (apart, sizes)]
        worst, scale = np.sqrt(squares).max(axis=1)
    ratio = worst / np.where(scale > 0, scale, 1.0)
    k = int(ratio.argmax())
    return {"error": float(ratio[k]), "by": by, "where": names[k]}
