"""A model of a network: latency and bandwidth of links, and places of nodes.

A message of b bytes takes ``latency + wire(b) / bandwidth`` on an idle link. The class
of a link is the smallest unit that contains both nodes. If that is not a host, the
message also passes its host's interface, and has headers of its own and of packets:

    wire(b) = b + message + packet * ceil((b + message) / payload)
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadmm.core import documents, schema
from dadmm.core.documents import Table, to_toml
from dadmm.core.errors import ConfigError, shown
from dadmm.core.layout import Matrix, Vector
from dadmm.core.schema import Checked
from dadmm.graphs.topology import Integers

PRESETS = Path(__file__).with_name("networks")
MOST_PLACES = 100_000  # hosts, sites and sockets
CLASSES = ("socket", "host", "lan", "wan")  # from near to far
LEAST, MOST = 1e-9, 1e18  # of amounts
POSITIVE = schema.number(f"at least {LEAST:g}", lambda x: x >= LEAST)
AMOUNT = schema.number(f"from 0 to {MOST:g}", lambda x: 0 <= x <= MOST)
FACTOR = schema.number(f"from {LEAST:g} to {MOST:g}", lambda x: LEAST <= x <= MOST)
TABLE = schema.of_type("a table", Mapping)
BY_CLASS = TABLE.also(f"of {', '.join(CLASSES)}", lambda links: {*links} <= {*CLASSES})
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
RATES = {
    f"{prefix}{unit}/s": scale * size
    for prefix, scale in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}.items()
    for unit, size in {"bit": 0.125, "B": 1.0}.items()
}
UNITS = {"latency": SECONDS, "bandwidth": RATES, "egress": RATES}  # by field

Places = str | int | tuple[int, ...]
T = TypeVar("T", bound=Checked)


@dataclass(frozen=True)
class Link(Checked):
    """A class of links: ``latency`` in seconds, ``bandwidth`` in bytes/s."""

    latency: float = schema.entry(0.0, AMOUNT)
    bandwidth: float = schema.entry(math.inf, POSITIVE)


@dataclass(frozen=True)
class Overhead(Checked):
    """Bytes on the wire besides the payload, per message and per packet."""

    message: float = schema.entry(0.0, AMOUNT)
    packet: float = schema.entry(0.0, AMOUNT)
    payload: float = schema.entry(1448.0, POSITIVE)  # 1500 less headers of IP and TCP
    confirmation: float = schema.entry(16.0, AMOUNT)  # in a packet of its own

    def wire(self, sizes: Matrix) -> Matrix:
        """Return the bytes on the wire of messages with this payload, 0 for none."""
        whole = sizes + self.message
        packets = np.ceil(whole / self.payload)
        return np.where(sizes > 0, whole + self.packet * packets, 0.0)


@dataclass(frozen=True)
class Override(Checked):
    """A link that differs from its class, between two nodes or hosts, both ways."""

    latency: float | None = schema.entry(None, AMOUNT)
    bandwidth: float | None = schema.entry(None, POSITIVE)
    nodes: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (len(self.nodes), len(self.hosts)) not in ((2, 0), (0, 2)):
            raise ConfigError(
                "an override must name two nodes or two hosts, such as nodes = [0, 5], "
                f"got {list(self.nodes or self.hosts)}"
            )


@dataclass(frozen=True)
class Stragglers(Checked):
    """Nodes that compute ``factor`` times as long: those named, or a random share.

    The random ones are drawn once, or ``anew`` in every iteration.
    """

    factor: float = schema.entry(1.0, FACTOR)
    nodes: tuple[int, ...] = ()
    share: float = schema.entry(0.0, schema.number("in 0..1", lambda x: 0 <= x <= 1))
    seed: int = schema.entry(0, schema.SEED)
    anew: bool = False

    def factors(self, n_iterations: int, n_nodes: int) -> Matrix:
        """Return the factor of each iteration and node."""
        _check_inside(self.nodes, n_nodes, "stragglers: nodes")
        slow = np.zeros((n_iterations, n_nodes), dtype=bool)
        slow[:, list(self.nodes)] = True
        rng = np.random.default_rng(self.seed)
        if self.anew:
            slow |= rng.random(slow.shape) < self.share
        else:
            slow[:, rng.permutation(n_nodes)[: round(self.share * n_nodes)]] = True
        return np.where(slow, self.factor, 1.0)


class Wires(NamedTuple):
    """The properties of the network for each edge of a graph."""

    kind: Integers  # (E,) index into CLASSES
    latency: Vector  # (E,)
    bandwidth: Vector  # (E,)
    leaves: NDArray[np.bool_]  # (E,) whether the message leaves its host
    host: Integers  # (n_nodes,)


@dataclass(frozen=True)
class Network(Checked):
    """Latency and bandwidth of links, and the places of nodes."""

    # by class; `host` stands for a missing `socket`
    links: Mapping[str, Link] = field(metadata={"kind": BY_CLASS})
    # of the nodes: as in the run, "each" its own, equal blocks on a number, or a list
    hosts: Places = "recorded"
    sockets: Places = 1  # per host, filled in blocks, or of each node in its host
    sites: Places = 1  # of the hosts, as hosts of the nodes
    egress: float = schema.entry(math.inf, POSITIVE)  # bytes/s of a host's interface
    burst: float = schema.entry(0.0, AMOUNT)  # bytes that it sends at once after a rest
    # whether a node sends a message that is the same for all neighbours once
    broadcast: bool = schema.entry(False, schema.FLAG)
    # bytes above which messages to another host end when the receiver confirms them
    confirm_above: float = schema.entry(math.inf, schema.AT_LEAST_0)
    overhead: Overhead = field(default_factory=Overhead)  # of what leaves a host
    override: tuple[Override, ...] = ()  # the last one that matches an edge applies
    stragglers: Stragglers = field(default_factory=Stragglers)
    name: str = schema.entry("network", schema.TEXT)

    @classmethod
    def read(cls, name: str | Path) -> Network:
        """Return a preset by its name, or the network of a TOML file."""
        path = PRESETS / f"{name}.toml"
        if "/" in str(name) or not os.path.isfile(path):
            path = Path(name)
        if not str(name) or not os.path.exists(path):
            known = ", ".join(sorted(file.stem for file in PRESETS.glob("*.toml")))
            raise ConfigError(f"no network {name}; give a TOML file, or one of {known}")
        found: Table = {"name": path.stem, "links": {}, "override": []}
        found |= documents.read_toml(path)
        links, rules = found["links"], found["override"]
        TABLE.check(f"{path}: links", links)
        schema.of_type("a list of tables", list).check(f"{path}: override", rules)
        links = {k: build(Link, v, f"{path}: links.{k}") for k, v in links.items()}
        rules = tuple(build(Override, v, f"{path}: override") for v in rules)
        found |= {"links": links, "override": rules}
        for part, kind in (("overhead", Overhead), ("stragglers", Stragglers)):
            if part in found:
                found[part] = build(kind, found[part], f"{path}: {part}")
        return build(cls, found, str(path))

    def to_toml(self) -> str:
        """Return the network as a TOML file for `read`."""
        parts = ("links", "overhead", "override", "stragglers")
        text = to_toml({k: v for k, v in vars(self).items() if k not in parts})
        tables: list[tuple[str, Checked]] = [
            *((f"[links.{name}]", link) for name, link in self.links.items()),
            ("[overhead]", self.overhead),
            ("[stragglers]", self.stragglers),
            *(("[[override]]", rule) for rule in self.override),
        ]
        for head, part in tables:
            told = {k: v for k, v in vars(part).items() if v not in (None, ())}
            text += f"\n{head}\n{to_toml(told)}"
        return text

    def place(
        self, n_nodes: int, recorded: Sequence[str] = ()
    ) -> tuple[Integers, Integers, Integers]:
        """Return host, socket and site of each node, each (n_nodes,)."""
        if self.hosts == "recorded":
            names = list(recorded) or ["here"] * n_nodes
            order = list(dict.fromkeys(names))
            host = np.array([order.index(name) for name in names])
        else:
            host = _spread(self.hosts, n_nodes, "hosts", "node")
        n_hosts = int(host.max()) + 1
        site = _spread(self.sites, n_hosts, "sites", "host")[host]
        if isinstance(self.sockets, tuple):
            return host, _spread(self.sockets, n_nodes, "sockets", "node"), site
        socket = np.zeros_like(host)
        for h in range(n_hosts):
            inside = np.flatnonzero(host == h)
            socket[inside] = _spread(self.sockets, len(inside), "sockets", "node")
        return host, socket, site

    def wires(
        self, edges: Integers, n_nodes: int, recorded: Sequence[str] = ()
    ) -> Wires:
        """Return the properties of edges (E, 2); recorded hosts come from a run."""
        host, socket, site = self.place(n_nodes, recorded)
        i, j = edges.T
        leaves = host[i] != host[j]
        kind = np.where(leaves, 2 + (site[i] != site[j]), socket[i] != socket[j])
        latency, bandwidth = np.empty(len(edges)), np.empty(len(edges))
        known = {"socket": self.links.get("host"), **self.links}
        for k in np.unique(kind):
            link = known.get(CLASSES[k])
            if link is None:
                raise ConfigError(
                    f"the network {self.name} has no links.{CLASSES[k]}, which some "
                    "neighbours need; add this table with latency and bandwidth"
                )
            latency[kind == k], bandwidth[kind == k] = link.latency, link.bandwidth
        for rule in self.override:
            pair, ends, size = rule.nodes, edges, n_nodes
            if rule.hosts:
                pair, ends, size = rule.hosts, host[edges], int(host.max()) + 1
            _check_inside(pair, size, "override")
            fits = (np.sort(ends, axis=1) == np.sort(pair)).all(axis=1)
            for own, value in ((latency, rule.latency), (bandwidth, rule.bandwidth)):
                if value is not None:
                    own[fits] = value
        return Wires(kind.astype(np.int64), latency, bandwidth, leaves, host)


def build(kind: type[T], given: Table, where: str) -> T:
    """Return a dataclass from a table, whose place is part of each error."""
    TABLE.check(where, given)
    amounts = {
        k: quantity(v, UNITS[k], f"{where}: {k}")
        for k, v in given.items()
        if k in UNITS
    }
    entries = schema.as_fields(kind, given | amounts, where)
    try:
        return kind(**entries)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def quantity(value: object, units: Mapping[str, float], name: str) -> float:
    """Return a number, or a string such as '10 Mbit/s', in the basic unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([A-Za-z/]*)\s*", str(value))
    try:
        return float(match[1]) * {"": 1.0, **units}[match[2]]  # type: ignore[index]
    except (TypeError, ValueError, KeyError):
        raise ConfigError(
            f"{name} must be a number or a string with one of the units "
            f"{', '.join(units)}, got {value!r}"
        ) from None


def _spread(rule: Places, count: int, name: str, of: str) -> Integers:
    """Return the place of each node or host."""
    if rule == "each":
        return np.arange(count)
    if type(rule) is int and 0 < rule <= MOST_PLACES:  # blocks, as benchmarks/netem
        return np.arange(count) * rule // count
    places = list(rule) if isinstance(rule, tuple) else []
    if len(places) == count and all(0 <= number < MOST_PLACES for number in places):
        return np.array(places, dtype=np.int64)
    raise ConfigError(
        f"{name} must be 'each', a positive number up to {MOST_PLACES} or a list with "
        f"one for each of {count} {of}s, got {shown(places or rule)}"
    )


def _check_inside(numbers: Sequence[int], count: int, name: str) -> None:
    for k in numbers:
        if not 0 <= k < count:
            raise ConfigError(f"{name} must be in 0..{count - 1}, got {k}")
