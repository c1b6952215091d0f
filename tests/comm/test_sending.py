"""Messages: their bytes read by hand; rounded, rare, lost or in turns."""

import math
import struct
from itertools import count

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.edges import Edges
from dadmm.comm import wire
from dadmm.comm.codec import Coder
from dadmm.comm.sending import REVISIT, Sending
from dadmm.comm.wire import HEADER, NEVER, PAYLOAD, SLEEPY, Box
from dadmm.core.layout import Layout
from dadmm.graphs.schedule import Schedule
from dadmm.penalty import SCHEMES, build
from tests.support.problems import distance, optimum, quadratics
from tests.support.solving import solve


@pytest.mark.parametrize("by_row", [True, False])
def test_fields_are_at_the_offsets_of_the_table(by_row):
    box = Box(3, 4, by_row)
    box.header[:] = wire.IDLE
    box.eta[1], box.fields[1] = 2.5, (1234, 5, 7, SLEEPY)
    box.numbers[1] = [1.0, -2.0, 3.0, math.pi]

    parts = [part[1].tobytes() for part in (box.eta, box.header, box.payload)]
    sent = struct.unpack("=dIHBB4d", b"".join(parts))
    assert sent == (2.5, 1234, 5, 7, 2, 1.0, -2.0, 3.0, math.pi)
    assert box.fields[0].tolist() == (NEVER, 0, 0, 1)
    assert not by_row or box.rows[1].tobytes() == b"".join(parts)
    assert HEADER.itemsize == 8
    assert not by_row or box.rows.shape[1] == 48


def test_a_brief_header_has_two_bytes_and_the_whole_one_follows_if_needed():
    out, box, data = Box(3, 4), Box(3, 4), np.zeros(64, np.uint8)
    out.header[:] = wire.IDLE
    out.fields[1], out.fields[2] = (NEVER, 30, 18, SLEEPY), (77, 9000, 3, PAYLOAD)
    out.payload[:, :5] = np.arange(15).reshape(3, 5)
    rows = np.arange(3)
    out.pack(rows, rows[[0, 2]], wire.BRIEF, 5, data)
    box.unpack(rows, wire.BRIEF, 5, data)

    brief = (PAYLOAD, SLEEPY | 18 << 3 | 30 << 11,
             PAYLOAD | wire.MORE | 3 << 3 | (9000 & 31) << 11)  # fmt: skip
    sent = struct.unpack("=3HIHBB10B", data[:24].tobytes())
    assert sent == (*brief, 77, 9000, 3, PAYLOAD, *range(5), *range(10, 15))
    assert out.needs_more.tolist() == [False, False, True]
    assert box.fields.tolist() == out.fields.tolist()
    assert (box.payload[[0, 2], :5] == out.payload[[0, 2], :5]).all()


LAYOUT = Layout.of(W=(3, 2), mu=(3,), a=())
PRIVATE = Layout({"w": (5,), "b": (2,), "own": (4,)}, private=["own"], scales={"b": 9})
ONE = Layout.of(x=())
# by payload, the share of the largest difference that a message may leave in an entry
LEFT = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-11}
LEFT |= {f"quantised:{b}": 2.0**-b * (1 + 2.0**-7) for b in (2, 3, 8, 11, 16)}
UNITS = [(p, u) for p in LEFT for u in (1.0, 1e-30, 1e30)]  # ranges are float32
UNITS += [(p, u) for p in ("float32", "float16") for u in (1e-300, 1e300)]


def coder(payload, layout):
    return Coder(Sending(payload).codec, layout)


def send(one, theta, said, heard):
    """Move both ends by a message, and return its bytes."""
    out = np.zeros((len(theta), one.length), dtype=np.uint8)
    one.write(theta, said, out)
    one.read(out.copy(), heard)
    assert_array_equal(said.view(np.uint64), heard.view(np.uint64))
    return out


def decoded(payload, layout, row, heard):
    """Return where a message leads, by plain integers and struct."""
    data, size = row.tobytes(), layout.shared_size
    if payload == "float64":
        return list(struct.unpack(f"={size}d", data))
    if payload in ("float32", "float16"):
        whole, real = ("i", "f") if payload == "float32" else ("h", "e")
        power, *numbers = struct.unpack(f"={whole}{size}{real}", data)
        pairs = zip(heard, numbers, strict=True)
        return [was + number * 2.0**power for was, number in pairs]
    n_parts, bits = len(layout.sizes), int(payload.partition(":")[2])
    halves = [data[2 * k : 2 * k + 2] for k in range(n_parts)]
    ranges = [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    digits = "".join(f"{byte:08b}" for byte in data[2 * n_parts :])
    codes = [digits[k * bits : (k + 1) * bits][::-1] for k in range(size)]
    found = zip(heard, np.repeat(ranges, layout.sizes).tolist(), codes, strict=True)
    return [
        was + reach * ((2 * int(code, 2) + 1) / 2**bits - 1)
        for was, reach, code in found
    ]


@pytest.mark.parametrize(("payload", "unit"), UNITS)
@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_both_ends_have_the_same_bits_and_what_is_left_is_bounded(
    payload, unit, layout
):
    one, said = coder(payload, layout), np.zeros((2, layout.shared_size))
    heard, rng = said.copy(), np.random.default_rng(0)
    starts, theta = layout.starts if "quantised" in payload else [0], 0.0
    for k in range(60):  # two nodes move less and less, as in a run
        theta = theta + unit * 0.8**k * rng.standard_normal(said.shape)
        before, was = np.abs(theta - said), said.tolist()
        out = send(one, theta, said, heard)
        for row, old, now in zip(out, was, said.tolist(), strict=True):
            assert decoded(payload, layout, row, old) == now
        most, after = (
            np.maximum.reduceat(gap, starts, axis=1)
            for gap in (before, np.abs(theta - said))
        )
        assert (after <= LEFT[payload] * most + 4e-16 * np.abs(theta).max()).all()
    assert np.abs(said - theta).max() < 1e-4 * unit
    still = said.copy()
    with np.errstate(all="raise"):  # no difference is sent as none
        send(one, still, said, heard)
    assert_array_equal(said, still)


@pytest.mark.parametrize("layout", [LAYOUT, PRIVATE, ONE])
def test_the_largest_entries_are_sent_and_the_others_later(layout):
    size, one = layout.shared_size, coder("topk:0.01", layout)
    theta, said = np.random.default_rng(0).normal(size=(2, size)), np.zeros((2, size))
    heard = said.copy()
    assert one.length == 4 + 2  # of one entry: the number, and its place
    for k in range(1, size + 1):
        left_out = np.abs(theta - said).max(axis=1)
        send(one, theta, said, heard)
        assert ((said != 0.0).sum(axis=1) == k).all()
        assert (np.abs(theta - said).max(axis=1) <= left_out).all()
    assert_allclose(said, theta, rtol=1e-7)


RING, CLUSTER = Topology.ring(5), Topology.cluster(6)
HEAD = HEADER.itemsize
FEW = {"payload": "quantised:3", "censor": 0.5, "edge_sleep": 0.6, "send_every": 2}


@pytest.mark.parametrize("payload", ["float64", "quantised:8"])
@pytest.mark.parametrize(("censor", "decay"), [(0.3, 0.9), (2.0, 0.5), (1e-3, 0.98)])
def test_a_change_is_sent_exactly_if_it_is_longer_than_the_threshold(
    payload, censor, decay
):
    head = HEAD if payload == "float64" else 2
    full = head + Coder(Sending(payload).codec, quadratics(1, 3)[0].layout).length
    before, seen = [], set()

    def watch(t, run):
        sent = run.state.sent
        for k, theta in enumerate(run.theta[run.incidence.node]):
            if t > 1:
                limit = censor * decay**t * np.linalg.norm(theta)
                due = bool(np.linalg.norm(theta - before[-1][k]) > limit)
                assert run.exchange.lengths[k] == (full if due else head)
                assert due or (sent[k] == before[-1][k]).all()
                seen.add(due)
        before.append(sent.copy())

    chosen = {"payload": payload, "censor": censor, "censor_decay": decay}
    settings = {"tolerance": 0, "max_iter": 40, "callbacks": [watch]}
    solve(quadratics(5, 3), RING, **chosen, **settings)

    assert seen == {True, False} or censor < 0.01


@pytest.mark.parametrize(("period", "every"), [(1, 1), (1, 3), (2, 2), (5, 1), (10, 3)])
def test_a_sleeping_edge_is_used_in_one_of_ten_turns(period, every, monkeypatch):
    rounds = [[] for _ in range(period)]
    for k, edge in enumerate(((0, 1), (1, 2), (2, 3), (3, 4), (0, 4))):
        rounds[k % period].append(edge)
    cycle = period * every

    def influence(self):  # the edge 0 - 1 moves neither end, and all others do
        ends = RING.edges.tolist()
        return np.array([1e-9 if {i, j} == {0, 1} else 1.0 + i for i, j in ends])

    monkeypatch.setattr(Edges, "influence", influence)
    result = solve(
        quadratics(5, 3), RING, schedule=Schedule(5, rounds), tolerance=0,
        edge_sleep=0.1, send_every=every, max_iter=35 * cycle, record_edges=True,
    )  # fmt: skip
    sent = result.history.edges["bytes"] > HEAD
    woken, other = np.flatnonzero(sent[:, 0]), RING.edges.tolist().index([2, 3])

    assert_array_equal(sent, sent[:, RING.reverse])
    assert sent[:, other].sum() == 35
    assert woken[0] == (every - 1) * period
    # it may take a turn until both have said that they would sleep
    assert (np.diff(woken[-3:]) == REVISIT * cycle).all()


def test_an_edge_sleeps_only_if_both_ends_would(monkeypatch):
    iterations = count(1)

    def influence(self):  # node 0 would sleep always, node 1 from 10 to 25
        moved = np.ones(len(RING.edges))
        moved[0] = 1e-9
        moved[2] = 1e-9 if 10 <= next(iterations) < 25 else 1.0
        return moved

    monkeypatch.setattr(Edges, "influence", influence)
    chosen = {"edge_sleep": 0.5, "tolerance": 0, "max_iter": 40, "record_edges": True}
    result = solve(quadratics(5, 3), RING, **chosen)
    sent = result.history.edges["bytes"][:, [0, 2]] > HEAD  # 0 -> 1, 1 -> 0

    assert RING.edges[[0, 2]].tolist() == [[0, 1], [1, 0]]
    assert sent[:10].all()
    assert not sent[12:18].any()
    assert sent[36:].all()


LOSSY = {"drop_probability": 0.2, "send_every": 2}
COUNTED = [{}, {"payload": "float16"}, *({k: FEW[k]} for k in list(FEW)[1:]), FEW]


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("scheme", ["snap", "nap", "fixed"])
@pytest.mark.parametrize("options", [*COUNTED, LOSSY], ids=lambda it: "+".join(it))
def test_counters_are_those_of_a_tally_by_iteration(options, scheme, turns):
    scheme = "fixed" if options is LOSSY else scheme
    alike, couples = [], build(scheme).couples
    is_brief = not couples and options.get("payload", "float64") != "float64"
    head, opening = 2 if is_brief else HEAD + 8 * couples, HEAD + 8 + 24

    def look(t, run):
        box, lengths = run.exchange.outbox, run.exchange.lengths
        payload = box.payload[:, : run.exchange.width] * (lengths > head)[:, None]
        eta = (box.eta * couples).view(np.uint64)
        rows = np.column_stack([lengths, box.header, eta, payload])
        first = rows[run.incidence.offsets[:-1]][run.incidence.node]
        alike.append((rows == first).all())

    result = solve(
        quadratics(6, 3), CLUSTER, scheme=scheme, sending=Sending(**options),
        schedule=Schedule.matchings(CLUSTER) if turns else None, max_iter=40,
        tolerance=0, record_edges=True, callbacks=[look],
    )  # fmt: skip

    sent, traffic = result.history.edges["bytes"], result.traffic  # (iterations, E)
    assert_array_equal(traffic.edge_messages, (sent > 0).sum(axis=0) + 1)
    assert_array_equal(traffic.edge_bytes, sent.sum(axis=0) + opening)
    assert_array_equal(traffic.edge_silent, (sent == head).sum(axis=0))
    for name, counted in (("messages", sent > 0), ("bytes", sent)):
        by_node = [counted[:, CLUSTER.edges[:, 0] == i].sum(axis=1) for i in range(6)]
        assert_array_equal(result.history[name], np.transpose(by_node))
    assert traffic.lost == 0 or options is LOSSY
    assert (traffic.edge_lost <= (sent > head).sum(axis=0)).all()
    few = turns or couples or {"edge_sleep", "drop_probability"} & set(options)
    assert traffic.is_broadcast == (not few)
    assert traffic.is_broadcast <= all(alike)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_sends_rarely_is_the_plain_one_in_slow_motion(scheme):
    """Bit for bit: iterations in which nothing is sent teach no scheme anything."""
    problems, settings = quadratics(4, 3, seed=2), {"t_max": 9, "budget0": 0.6}

    def thetas(every):
        found = []
        solve(
            problems, Topology.ring(4), scheme=scheme, tolerance=0, send_every=every,
            max_iter=24 * every, callbacks=[lambda t, run: found.append(run.theta)],
            **settings,
        )  # fmt: skip
        return found[every - 1 :: every]

    plain = thetas(1)
    assert_array_equal(thetas(2), plain)
    assert_array_equal(thetas(3), plain)


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("stopping", ["objective", "residuals"])
def test_iterations_without_messages_are_no_standstill(stopping, agreement):
    """Else a run that sends rarely would stop at once: nothing changes meanwhile."""
    settings = {"scheme": "fixed", "stopping": stopping, "agreement": agreement}
    plain, rare = (
        solve(quadratics(6, 3, seed=8), CLUSTER, send_every=every, **settings)
        for every in (1, 5)
    )
    assert rare.converged
    assert rare.iterations >= 5 * (plain.iterations - 2 * CLUSTER.diameter)


WAYS = {
    "all": {},
    "float32": {"payload": "float32"},
    "float16": {"payload": "float16"},
    "quantised 8": {"payload": "quantised:8"},
    "quantised 3": {"payload": "quantised:3"},
    "censor": {"censor": 0.3, "censor_decay": 0.85},
    "every 2": {"send_every": 2},
    "sleep": {"edge_sleep": 0.3},
}
WAYS["combined"] = WAYS["censor"] | WAYS["sleep"] | {"payload": "quantised:4"}
WAYS["at once"] = WAYS["combined"] | {"censor_decay": 0.95, "send_every": 2}
TURNS = {
    "matchings": Schedule.matchings(CLUSTER),
    "names": Schedule.build(["star", "ring", "chain"], 6),
    "a third": Schedule(6, [[(i, i + 1)] for i in (4, 2, 0)] + [[(1, 2), (3, 4)]]),
}
CASES = [(None, scheme, way) for scheme in SCHEMES for way in ("all", "combined")]
CASES += [(None, s, way) for s in ("snap", "nap") for way in list(WAYS)[1:-2]]
CASES += [(name, s, "all") for name in TURNS for s in ("snap", "fixed")]
CASES += [("matchings", s, "at once") for s in ("snap", "vp_nap")]


def reach(problems, net, *callbacks, **settings):
    """Solve until the worst node is within 1e-9; return the result and its error."""
    best = optimum(problems)

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-9 else None

    chosen = {"tolerance": 0, "max_iter": 2500, "record": False} | settings
    result = solve(problems, net, callbacks=[watch, *callbacks], **chosen)
    return result, distance(result.theta, best)


@pytest.mark.parametrize(("turns", "scheme", "way"), CASES)
def test_the_optimum_is_reached_whatever_is_sent(turns, scheme, way):
    """After every iteration, both ends of an edge are equal and opposite, bitwise."""
    schedule = TURNS.get(turns)
    net = CLUSTER if schedule is None else schedule.union

    def compare(t, run):
        names = ("multipliers", "anchors", "eta")
        ends = [run.by_edge(getattr(run.state, name)) for name in names]
        for sign, mine in zip((-1, 1, 1), ends, strict=True):
            assert_array_equal(mine, sign * mine[net.reverse])
        together = run.work.multiplier.sum(axis=0)
        assert np.abs(together).max() <= 1e-14 * np.abs(ends[0]).sum()

    chosen = {"schedule": schedule, "scheme": scheme, **WAYS[way]}
    result, error = reach(quadratics(6, 3, seed=5), net, compare, **chosen)

    assert error < 1e-8
    assert result.reason == "signal"


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_the_optimum_is_reached_over_links_that_lose(loss):
    problems, lossy = quadratics(5, 3, seed=4), {"drop_probability": loss}
    (result, *errors), (again, _), (other, _) = (
        reach(problems, RING, scheme="fixed", relaxation=1.6, drop_seed=seed, **lossy)
        for seed in (3, 3, 4)
    )
    assert max(errors) < 1e-8
    assert_array_equal(result.theta, again.theta)
    assert_array_equal(result.traffic.edge_lost, again.traffic.edge_lost)
    assert (result.traffic.edge_lost != other.traffic.edge_lost).any()
    sent = result.traffic.messages - len(RING.edges)
    assert abs(result.traffic.lost / sent - loss) < 4 * np.sqrt(loss / sent)

    chosen = {"scheme": "fixed", "eta0": "auto", "tolerance": 1e-5, "max_iter": 3000}
    result = solve(problems, RING, **chosen, **lossy)
    assert (result.reason, result.status) == ("converged", "stopped")
    assert distance(result.theta, optimum(problems)) < 1e-3
    assert result.ending.iteration + np.log(1e-9) / np.log(loss) < result.iterations
    chosen |= {"max_iter": 60, "stopping": "residuals"}  # the dual one is not known
    assert solve(problems, RING, **chosen, **lossy).reason == "max_iter"
