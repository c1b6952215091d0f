"""``dadmm compare``: methods, ways of sending and graphs, by what they send.

Every combination is run for every seed, which sets data and start, until all nodes are
and stay within the goal; `trials` measures one such run. The same command again repeats
no finished run. Exit codes: 0 success, 1 if a rank raised an error, 2 invalid input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm import baselines, penalty
from dadmm.baselines import ALGORITHMS, Algorithm
from dadmm.baselines.algorithms import check_suited
from dadmm.cli import job, setup
from dadmm.cli.progress import Bar
from dadmm.cli.trials import Arrival, Watch, find_best, find_optimum
from dadmm.comm import identity
from dadmm.comm.sending import Sending, check_drop
from dadmm.comm.world import collectively, from_rank_0
from dadmm.core.arguments import Parser, print_out
from dadmm.core.classes import check_name, import_class, require
from dadmm.core.documents import Table, write_csv, write_text, writing
from dadmm.core.errors import ConfigError, ProblemError, shown
from dadmm.core.layout import Matrix
from dadmm.core.schema import from_text, integer, number
from dadmm.core.version import __version__
from dadmm.penalty import Fixed, Scheme, name_of
from dadmm.runs.config import MAY_CHANGE, RunConfig
from dadmm.show.report import CURVES, TABLE, WHAT, Row, draw_methods, groups, write_page
from dadmm.solver.plan import Kind
from dadmm.solver.solve import Stopping, solve
from dadmm.timing.network import Network

CELLS = "cells.jsonl"  # finished runs, one a line
BEST = "best"  # a setting to be found on other seeds than those shown
TUNING = (1001, 1002)  # the seeds on which it is found
TARGETS = {True: 1.0, False: 1e-6}  # degrees for a subspace, else a relative distance
RANGES = {
    "seeds": integer(1, TUNING[0] - 1),
    "to": number("above 0 and below 90", lambda x: 0 < x < 90),
    "work": number("from 0 to 1e9", lambda x: 0 <= x < 1e9),
}
ABOUT = (
    "Compare methods on one problem by iterations, bytes and modelled seconds. The "
    "settings of dadmm run are allowed, too: --problem, --data, --nodes, "
    "--coordinates, --max-iter, --report and others."
)
OWN = {"--scheme": "--method", "--seed": "--seeds", "--data-seed": "--seeds"}
COLUMNS = {  # of the table: entry of a row, form, unit, and whether with quartiles
    "first": ("first", "{:.0f}", 1.0, True),
    "for good": ("for_good", "{:.0f}", 1.0, True),
    "messages": ("messages", "{:,.0f}", 1.0, False),
    "kB a node": ("total_bytes", "{:.3g}", 1e-3, True),
    "by radio": ("broadcast_bytes", "{:.3g}", 1e-3, False),
    "set-up": ("setup_bytes", "{:.3g}", 1e-3, False),
    "end": ("end_bytes", "{:.3g}", 1e-3, False),
}


def make_parser() -> Parser:
    """Return the parser of the flags that `dadmm run` does not have."""
    parser = Parser("compare", ABOUT, allow_abbrev=False)
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--method", metavar="NAME", **several, help="a scheme (snap, nap, ...), extra, "
        "nids, diging, allreduce, one_sum, or package.module:Class, with settings as "
        "in fixed:eta0=2; eta0=best or step=best is tuned on seeds that are not "
        "compared; may be repeated")  # fmt: skip
    add("--payload", metavar="NAME", **several, help="a way of sending, as quantised:4 "
        "or float64,censor=0.03; may be repeated")  # fmt: skip
    add("--topology", metavar="NAME", **several, help="a graph; may be repeated")
    add("--seeds", type=int, default=10, metavar="N", help="seeds 1 to N (default: 10)")
    add("--to", type=float, metavar="X", help="the goal: largest relative distance of "
        "a node from the pooled optimum in the metric (default: 1e-6); for ppca the "
        "angle to the centralised subspace in degrees (default: 1)")  # fmt: skip
    add("--network", metavar="NAME", **several, help="model seconds on a preset (host, "
        "lan, wan, wireless) or a TOML file; may be repeated (default: lan, wan, "
        "wireless)")  # fmt: skip
    add("--work", type=float, default=1e-4, metavar="SECONDS", help="computing time of "
        "a node in an iteration, for the modelled seconds (default: 1e-4)")  # fmt: skip
    add("--out", default="compare", metavar="FOLDER", help="folder of the results; "
        "finished runs in it are kept (default: compare)")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return job.main(argv, Comparison)


class Method(NamedTuple):
    """A scheme or an algorithm with its settings; one of them may be `BEST`."""

    text: str
    make: type[Any]
    settings: Mapping[str, Any]
    tuned: str  # the setting that is `BEST`, or ""

    def build(self, best: float | None = None) -> Scheme | Algorithm:
        """Return the scheme or algorithm; ``best`` is the setting that was found."""
        own = {name: value for name, value in self.settings.items() if value != BEST}
        if best is not None:
            own[self.tuned] = best
        made: Scheme | Algorithm = self.make(**own)
        return made

    @classmethod
    def parse(cls, text: str) -> Method:
        """Return the method of a text: NAME, or NAME:key=value,key=value.

        NAME is a scheme, an algorithm, or a class of your own, package.module:Class.
        """
        name, _, rest = text.partition(":")
        known: dict[str, type] = {**penalty.SCHEMES, **ALGORITHMS}
        make = known.get(name)
        if make is None:
            path, _, rest = rest.partition(":")
            place = f"{name}:{path}" if path else name
            check_name("method", place, known)
            make = import_class("method", place, (Scheme, Algorithm))
        settings = _parse_settings(f"method {shown(text)}", rest, make)
        tuned = [key for key, value in settings.items() if value == BEST]
        tunable = "eta0" if issubclass(make, Scheme) else "step"
        if tuned and tuned != [tunable]:
            raise ConfigError(f"method {shown(text)}: only {tunable} can be {BEST}")
        found = cls(text, make, settings, tunable if tuned else "")
        found.build()  # raises if a setting is not valid
        return found


def _parse_settings(what: str, text: str, make: type) -> Table:
    """Return the settings of a class from a text such as "step=0.5,name=value"."""
    kinds, found = {item.name: str(item.type) for item in fields(make)}, Table()
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in kinds:
            raise ConfigError(
                f"{what}: {shown(word)} is not name=value with one of "
                f"{', '.join(kinds)}"
            )
        name = f"{what}: {key}"
        found[key] = BEST if value == BEST else from_text(name, value, kinds[key])
    return found


class Cell(NamedTuple):
    """One run of a comparison."""

    seed: int
    topology: str
    payload: str
    method: Method


class Comparison(job.Job):
    """All runs of a comparison on this rank; each is set up as those of `Job` are."""

    def run(self, argv: Sequence[str]) -> int:
        """Check all runs, do what is left, and write the table and the figures."""
        try:
            collectively(self.world, self._read, list(argv))
        except SystemExit:  # --help
            return job.OK
        seeds, graphs = range(1, self.given.seeds + 1), self.given.topology
        every = product(seeds, graphs, self.sendings, self.methods)
        cells = [Cell(*parts) for parts in every]
        self.done: Table = from_rank_0(self.world, self._read_done)
        left = [cell for cell in cells if _digest(self._facts(cell)) not in self.done]
        for cell in left:
            if cell.seed == left[0].seed:
                self._check(cell)
        if left:
            collectively(self.world, self._append, "\n")  # a job may leave half a line
        rows, bar = [], Bar(len(cells), "runs")
        for k, cell in enumerate(cells):
            rows.append(self._noted(self._facts(cell), self._cell, cell))
            if self.world.rank == 0:
                bar.show(k + 1)
        print_out(from_rank_0(self.world, lambda: self._write(rows)))
        return job.OK

    def _read(self, argv: list[str]) -> None:
        """Read the command line, on each rank; raise if something is unknown."""
        given, rest = make_parser().parse_known_args(argv)
        for word in rest:
            flag = word.partition("=")[0]
            if flag in OWN:
                raise ConfigError(f"{flag} is not for compare; use {OWN[flag]}")
        given.topology = given.topology or ["ring"]
        flags = ["--topology", given.topology[0], "--placement", "blocks"]
        config = RunConfig.from_argv([*rest, *flags]).config
        if config.has_subspace:
            config = replace(config, compare_centralised=True)
        given.to = TARGETS[config.has_subspace] if given.to is None else given.to
        for name, kind in RANGES.items():
            kind.check(f"--{name}", getattr(given, name))
        if config.report:
            require(*job.REPORT)
        self.given, self.config = given, config
        self.machines = [""] * self.world.size
        self.methods = [Method.parse(text) for text in given.method or ["snap"]]
        self.sendings, usual = dict[str, Sending](), config.options["sending"]
        for text in given.payload or [str(config.payload)]:
            payload, _, more = text.partition(",")
            own = _parse_settings(f"payload {shown(text)}", more, Sending)
            self.sendings[text] = replace(usual, **({"payload": payload} | own))
        names = given.network or ["lan", "wan", "wireless"]
        self.networks = {name: Network.read(name) for name in names}
        usual = self.world.size if self.over_mpi else config.traits.nodes
        self.n_nodes = config.nodes or usual  # unless a file decides it
        # what decides the numbers of all cells
        self._common = _digest(config.applied(MAY_CHANGE) | {
            "dadmm": __version__, "numpy": np.__version__,
            "to": given.to, "work": given.work, "nodes": self.n_nodes,
            "networks": " ".join(one.to_toml() for one in self.networks.values()),
        })  # fmt: skip
        self._loaded = (0, "")  # seed and graph
        self._data_of = (0, 0)  # seed and number of nodes

    def _facts(self, cell: Cell) -> Table:
        """Return what the row of a cell begins with."""
        return {
            "problem": self.config.problem, "topology": cell.topology,
            "nodes": self.n_nodes, "method": cell.method.text,
            "payload": cell.payload, "seed": cell.seed, "settings": self._common,
        }  # fmt: skip

    def _cell(self, cell: Cell) -> Table:
        """Run one cell; return its row of the table, on rank 0."""
        facts, best, tuned = self._facts(cell), None, ""
        if cell.method.tuned:
            best = self._noted(facts | {"seed": "tuning"}, self._tune, cell)
            if best is None:
                return facts | {"ended": f"no {cell.method.tuned} found", "tuned": ""}
            tuned = f"{cell.method.tuned}={best:.4g}"
        watch = self._run(cell, best, self.config.max_iter)
        over_tree = getattr(cell.method.make, "width", 1) == 0
        found = watch.measure(self.graph, self.networks, self.given.work, over_tree)
        about = {"coordinates": self.plan.name, "known": self._known}
        about["nodes"] = self.graph.n_nodes  # a file may decide it
        return {**facts, "tuned": tuned, **about, **found}

    def _check(self, cell: Cell) -> None:
        """Raise if a method cannot be used with the problem, graph and payload."""
        self._prepare(cell)
        made, sending = cell.method.build(), self.sendings[cell.payload]
        if isinstance(made, Scheme):
            check_drop(sending, name_of(made))
        else:
            first = self.problems[min(self.problems)]
            kind = Kind.RAW if self.plan.kind is Kind.RAW else Kind.METRIC
            check_suited(made, first, kind, sending, self.schedule)

    def _run(self, cell: Cell, best: float | None, cap: int) -> Watch:
        """Run a method, until its nodes have arrived or ``cap`` iterations are done."""
        self._prepare(cell)
        made, arrival = cell.method.build(best), Arrival(self.given.to, cap)
        watch = Watch(self.world, self._distance, arrival)
        common: Table = {
            "sending": self.sendings[cell.payload], "schedule": self.schedule,
            "callbacks": [watch], "comm": self.world.comm,
        }  # fmt: skip
        self._is_alone = True
        if isinstance(made, Algorithm):
            baselines.solve(
                self.problems, self.graph, made, max_iter=arrival.longest,
                coordinates=self.config.coordinates, **common,
            )  # fmt: skip
        else:
            try:
                result = solve(
                    self.problems, self.graph, scheme=made, record=False, gather="none",
                    stopping=Stopping(tolerance=0.0, max_iter=arrival.longest),
                    **self._options, **common,
                )  # fmt: skip
                watch.finish(result.traffic)
            except ProblemError:  # an objective is not finite
                if self.over_mpi:  # other ranks wait for this one
                    raise
                arrival.is_wild = True
        self._is_alone = False
        return watch

    def _tune(self, cell: Cell) -> float | None:
        """Return the best value of a setting, found on other seeds than those shown."""

        def latest(value: float, cap: int) -> int | None:
            last = 0
            for seed in TUNING:
                arrival = self._run(cell._replace(seed=seed), value, cap).arrival
                if arrival.for_good is None:
                    return None
                last = max(last, arrival.for_good)
            return last

        start = 1.0
        if issubclass(cell.method.make, Scheme):
            self._prepare(cell._replace(seed=TUNING[0]))
            result = solve(
                self.problems, self.graph, scheme=Fixed(eta0="auto"), record=False,
                stopping=Stopping(tolerance=0.0, max_iter=1), gather="none",
                comm=self.world.comm, **self._options,
            )  # fmt: skip
            usual = np.sort(self.world.gather(result.penalties.eta0, True))
            start = float(np.exp(np.log(usual).mean()))
        return find_best(latest, start, self.config.max_iter)

    def _prepare(self, cell: Cell) -> None:
        """Load or draw the data of a seed, and build the graph, unless it was done."""
        config, seed, topology = self.config, cell.seed, cell.topology
        if self._loaded == (seed, topology):
            return
        # `default_rng([s, 0])`, of a shared start, is `default_rng(s)`, of the data
        self.config = replace(config, topology=topology, data_seed=seed, seed=seed + 1)
        setup.build_graph(self)
        if self._data_of != (seed, self.graph.n_nodes):
            setup.load_data(self)
            self._set_goal()
            self._data_of = seed, self.graph.n_nodes
        self.config, self._loaded = config, (seed, topology)

    def _set_goal(self) -> None:
        """Set the distance to compare with the goal, and the options of `solve`."""
        config, targets, name = self.config, self.targets, "angle_to_centralised"
        names = ("coordinates", "init", "seed")
        self._options: Table = {key: getattr(config, key) for key in names}
        if not config.has_subspace:
            self._distance, self._known = find_optimum(
                self.world, self.problems, self.graph, self.given.to
            )
            return
        if name not in targets.W:
            raise ConfigError(
                "with missing entries the centralised subspace is not known, so "
                "methods cannot be compared; use complete data"
            )

        def angle(theta: Matrix) -> float:
            most = float(abs(theta).max())
            if not most < 1e100:  # it diverges, which an angle does not show
                return most
            return float(targets.angles(name, theta).max())

        self._distance, self._known = angle, 0.0
        self._options["bound_angle"] = False

    def _read_done(self) -> Table:
        file, done = Path(self.given.out) / CELLS, Table()
        with writing(file.parent):
            text = file.read_text("utf-8") if file.exists() else ""
            if not file.exists() and any(file.parent.glob("*")):
                raise ConfigError(
                    f"{file.parent} is not empty, and has no comparison; choose "
                    "another --out"
                )
        for line in text.splitlines():
            with suppress(ValueError):  # the job was ended while it wrote this
                key, done[key] = json.loads(line)
        return done

    def _noted(self, facts: Table, find: Callable[[Cell], Any], cell: Cell) -> Any:
        """Return what is known under some facts; if nothing is, find and note it."""
        key = _digest(facts)
        if key not in self.done:
            self.done[key] = found = find(cell)
            collectively(self.world, self._append, f"{json.dumps([key, found])}\n")
        return self.done[key]

    def _append(self, line: str) -> None:
        if self.world.rank == 0:
            folder = Path(self.given.out)
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                with open(folder / CELLS, "a", encoding="utf-8") as file:
                    file.write(line)

    def _write(self, rows: Sequence[Row]) -> str:
        """Write the tables, figures and page of all runs; return the text to print."""
        folder, lines = Path(self.given.out), self._table(rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        given, config = self.given, self.config
        goal = f"{given.to:g} of the pooled optimum, relative, in its metric"
        if config.has_subspace:
            goal = f"{given.to:g} degrees of the centralised subspace"
        text = f"{config.problem}, {given.seeds} seeds: until all nodes are and stay "
        text += f"within {goal}; coordinates {config.coordinates}. Seconds are "
        text += f"modelled, with {given.work:g} s of work per node and iteration; "
        text += "bytes and seconds are with set-up and end."
        tuned = ", ".join(method.text for method in self.methods if method.tuned)
        text += f" Tuned on other seeds: {tuned}.\n\n" if tuned else "\n\n"
        for line in (lines[0], ["-" * width for width in widths], *lines[1:]):
            text += f"| {' | '.join(map(str.ljust, line, widths))} |\n"
        write_text(folder / TABLE, text)
        plain, curves = [], list[Row]()
        for row in rows:
            plain.append({k: v for k, v in row.items() if k != "curve"})
            own, curve = {k: row[k] for k in (*WHAT, "seed")}, row.get("curve", {})
            for point in zip(*curve.values(), strict=True):
                curves.append(own | dict(zip(curve, point, strict=True)))
        for name, found in (("runs.csv", plain), (CURVES, curves)):
            write_csv(folder / name, found)
        draw_methods(folder, rows)
        if not config.report:
            return f"{text}\nresults in {folder}\n"
        return f"{text}\n{write_page([folder])[0].resolve().as_uri()}\n"

    def _table(self, rows: Sequence[Row]) -> list[list[str]]:
        """Return medians over the seeds, and quartiles; the first row is the head."""
        columns = dict(COLUMNS)
        for name in self.networks:
            columns[f"s, {name}"] = (f"{name}_seconds", "{:.3g}", 1.0, False)
        lines = [["graph", "method", "payload", *columns, "failed"]]
        for (graph, method, payload), own in groups(rows):
            tuned = next((row["tuned"] for row in own if row.get("tuned")), "")
            line = [graph, f"{method} ({tuned})" if tuned else method, payload]
            for name, form, unit, quartiles in columns.values():
                values = [unit * row[name] for row in own if row.get(name) is not None]
                spread = np.percentile(values, (25, 50, 75)) if values else ()
                low, middle, high = [form.format(v) for v in spread] or ["-"] * 3
                shows_all = quartiles and low != high
                line.append(f"{middle} ({low} to {high})" if shows_all else middle)
            ended = [row["ended"] for row in own if row["ended"] != "arrived"]
            failed = f"{len(ended)}: {', '.join(sorted(set(ended)))}" if ended else "0"
            lines.append([*line, failed])
        return lines


def _digest(facts: Table) -> str:
    return identity.digest(identity.settings(facts))
