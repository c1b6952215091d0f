"""How all nodes stop after the same iteration, without a server.

If ``quiet_count`` in the header of a message is c, all nodes within c - 1 edges of the
sender were satisfied c - 1 iterations ago. If it exceeds the diameter, all nodes were
satisfied in the same iteration, and the node sets ``stop_at``, after which all nodes
stop, to an iteration by which it has reached all of them.

``requests`` are to save, or to stop because of time, a signal or a full disk. A round
has as many iterations as a header needs to reach all nodes. All know a request at the
end of the round after it was made, and carry it out then. Requests do not change the
verdict: a run that is stopped and resumed converges after the same iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dadmm.admm import rule as rules
from dadmm.admm.rule import CriteriaLog, Rule, Scales, Unmet, Verdict
from dadmm.admm.state import Nodes, Numbers
from dadmm.comm.sending import Turn
from dadmm.comm.wire import HEADER, IDLE, MOST_QUIET, NEVER, Box
from dadmm.core.errors import ConfigError, shown
from dadmm.core.layout import Matrix, Vector

# Requests by code, as in a header; the largest code takes precedence.
REQUESTS = ("", "save", "stop", "max_seconds", "signal", "output")
REASONS = ("max_iter", "converged", "no_minimum", *REQUESTS[2:])
AGREEMENTS = ("neighbours", "global")
PATIENCE = 4  # satisfied iterations in a row that a node needs
LOW, HIGH = np.uint8(15), np.uint8(240)  # requests of even and of odd rounds
MOST_SAMPLED = 2**16  # numbers of samples that are judged together


class NeighbourStopping:
    """The verdict of each node, and the agreement of all nodes by their headers.

    A header needs ``reach`` iterations to reach all nodes, and in ``cycle`` iterations
    every edge is used at least once. The rule must hold for `PATIENCE` times ``window``
    iterations in a row, at least. ``objective`` returns what it judges, by default f_i.
    """

    is_joint = False  # whether the rule judges the sum over all nodes

    def __init__(
        self,
        nodes: Nodes,
        rule: Rule,
        reach: int,
        cycle: int = 1,
        window: int = 1,
        scales: Scales | None = None,
        objective: Callable[[], Vector] | None = None,
    ) -> None:
        self.nodes, self.state, self.work = nodes.names, nodes.state, nodes.work
        self.rule, self.incidence = rule, nodes.incidence
        self.reach, self.cycle = reach, cycle
        self._scales, self._objective = scales, objective
        self.work.tolerance[...] = rule.tolerance
        self._round = max(reach, 1)
        self._sizes = np.sqrt(nodes.layout.sizes)[:, None]
        # "residuals" and "objective" measure changes, which are small while edges are
        # not used. So they must hold for a whole cycle.
        self._window = window if rule.name == "optimality" else max(window, cycle)
        self._last = np.empty_like(self.work.numbers)  # of the iteration before
        self._t = 0  # the last iteration that was judged here
        self._samples: list[tuple[int, np.ndarray]] = []  # of the trail, not judged
        counts = len(self.incidence.node), len(self.nodes)
        self._idle = tuple(IDLE.tobytes() * count for count in counts)
        self._fields = self.state.header.view(HEADER)
        self.log = CriteriaLog(PATIENCE * self._window, 2 * reach)

    def judge(self, box: Box, turn: Turn) -> None:
        state, work = self.state, self.work
        if self._objective is None:
            work.judged[...], work.previous[...] = work.objective, state.objective
        else:
            work.previous[...] = work.judged
            work.judged[...] = self._objective()
        holds = self.rule.met(work, self._sizes, self._scales)
        self._t = turn.t
        self.log.enter(turn.t, np.count_nonzero(holds) == len(holds), self._worst)
        self._last[...] = work.numbers
        if rules.is_sampled(turn.t):
            self._samples.append((turn.t, work.numbers.copy()))
            if len(self._samples) * work.numbers.size > MOST_SAMPLED:
                self._judge_samples()
        state.held += 1
        state.held *= holds
        self._vote(box, turn)

    def _judge_samples(self) -> None:
        """Add the kept samples to the trail; together they take less time."""
        if self._samples:
            times, numbers = zip(*self._samples, strict=True)
            most = _factors(self.verdict(np.array(numbers))).max(axis=(0, 2))
            for t, factor in zip(times, most.tolist(), strict=True):
                self.log.sample(t, factor)
            self._samples = []

    def _vote(self, box: Box, turn: Turn) -> None:
        self._agree(box, turn, self.state.held >= PATIENCE * self._window)

    def done(self, t: int) -> bool:
        """Return whether all nodes stop after this iteration; all agree on it."""
        return bool(self._fields["stop_at"][0] <= t)

    def reopen(self, tolerance: float) -> None:
        """Continue with another tolerance after all nodes have agreed to stop."""
        self.work.tolerance[...] = tolerance
        self.state.held[...] = self.log.held = 0
        self._fields["stop_at"], self._fields["quiet_count"] = NEVER, 0

    def request(self, t: int, request: str) -> None:
        """Request something of all nodes, see `REQUESTS`."""
        if not isinstance(request, str) or request not in REQUESTS[1:]:
            raise ConfigError(
                f"a callback returned {shown(request)}; return None, or one of "
                f"{', '.join(REQUESTS[1:])}"
            )
        code = REQUESTS.index(request) << 4 * (t // self._round % 2)
        _merge(self._fields["requests"], np.uint8(code))

    def due_request(self, t: int) -> str:
        """Return the request that all nodes carry out after this iteration, or ""."""
        rounds, rest = divmod(t, self._round)
        requests = self._fields["requests"]
        if rest or not requests[0]:
            return ""
        shift = 4 * (rounds % 2)  # of the round before: known to all nodes
        code = int(requests[0]) >> shift & 15
        requests &= np.uint8(255 - (15 << shift))
        return REQUESTS[code]

    def _agree(self, box: Box, turn: Turn, satisfied: np.ndarray) -> None:
        """Update the headers; ``satisfied`` nodes have met the rule long enough."""
        theirs, mine = self._idle
        is_idle = not np.count_nonzero(satisfied) and box.header.tobytes() == theirs
        if is_idle and self.state.header.tobytes() == mine:
            self.work.quiet[...] = 0
            return
        fields, received = self._fields, box.fields
        if turn.present is not None:  # without a message, a header of no effect
            blank = np.array((NEVER, MOST_QUIET, 0, 0), dtype=HEADER)
            received = np.where(turn.present, received, blank)
        quiet, stop_at = fields["quiet_count"], fields["stop_at"]
        reduce, n = self.incidence.reduce, len(fields)
        least = np.full(n, MOST_QUIET, dtype=np.uint16)
        reduce(np.minimum, received["quiet_count"], least)
        wider = np.minimum(1 + np.minimum(quiet, least).astype(np.int64), MOST_QUIET)
        quiet[...] = np.where(satisfied, wider, 0)
        soonest = np.full(n, NEVER, dtype=np.uint32)
        reduce(np.minimum, received["stop_at"], soonest)
        np.minimum(stop_at, soonest, out=stop_at)
        agreed = quiet > self.reach
        stop_at[agreed] = np.minimum(stop_at[agreed], turn.t + self.reach)
        for digit in (LOW, HIGH):
            asked = np.zeros(n, dtype=np.uint8)
            reduce(np.maximum, received["requests"] & digit, asked)
            _merge(fields["requests"], asked)
        self.work.quiet[...] = quiet

    def _worst(self, t: int) -> Unmet:
        """Return the criterion furthest from its limit, at this ``t`` or the last."""
        verdict = self.verdict(self.work.numbers if t == self._t else self._last)
        factors = _factors(verdict)
        row = int(np.lexsort((self.nodes, -factors.max(axis=0)))[0])
        criterion = int(factors[:, row].argmax())
        part = (-1, *(int(part[row]) for part in verdict[3:]))[criterion]
        factor = float(factors[criterion, row])
        return Unmet(t, factor, criterion, part, int(self.nodes[row]))

    def log_of_stop(self) -> CriteriaLog:
        """Return the log of the criteria that decide when the run stops."""
        self._judge_samples()
        if self._t and not self.log.held:
            self.log.unmet = self._worst(self._t)
        return self.log

    def verdict(self, numbers: np.ndarray) -> Verdict:
        """Return the verdict on numbers (..., K, n) of one or more iterations."""
        now = Numbers(numbers, len(self._sizes))
        return self.rule.verdict(now, self._sizes, self._scales)

    def save(self) -> Vector:
        return NeighbourStopping.log_of_stop(self).save()

    def restore(self, saved: Matrix) -> None:
        self.log.restore(saved[:, : rules.SAVED])
        if not self.rule.is_scaled or callable(self._scales):
            self.work.tolerance[...] = self.rule.tolerance
        self._last[...] = self.work.numbers
        self._t, self._samples = 0, []


def _factors(verdict: Verdict) -> np.ndarray:
    """Return the multiples of the limits, (3, ..., n); -inf if not used."""
    factors = np.array(verdict[:3])
    factors[np.isnan(factors)] = -np.inf
    return factors


def _merge(requests: np.ndarray, more: np.ndarray | np.uint8) -> None:
    """Keep the larger code of each round."""
    low = np.maximum(requests & LOW, more & LOW)
    requests[...] = low | np.maximum(requests & HIGH, more & HIGH)


class GlobalStopping(NeighbourStopping):
    """Stopping by a collective over all nodes, comparable with the paper's curves.

    Every node posts its objective for the rule "objective", or else whether it is
    satisfied. This is read one iteration later, so that no node waits for it.
    """

    NAME = "stopping"

    def __init__(self, nodes: Nodes, rule: Rule, *more: Any) -> None:
        super().__init__(nodes, rule, *more)
        self.log.delay, self.is_joint = 1, rule.name == "objective"
        self._exchange, self._agreed = nodes.exchange, False
        self._joint = CriteriaLog(PATIENCE * self.cycle, 0)  # of the whole network
        self._heard, self._total = 0, math.inf  # votes, and the last total objective

    def _vote(self, box: Box, turn: Turn) -> None:
        posted, held = self.state.posted, self.state.held
        self._agree(box, turn, np.zeros(len(held), dtype=bool))
        if self.NAME in posted:
            self.hear(self._exchange.read(self.NAME)[:, 0])
        if not self._agreed:
            satisfied = held > PATIENCE * (self._window - 1)
            vote = self.work.judged if self.is_joint else satisfied
            posted[self.NAME] = np.array(vote, dtype=np.float64)[:, None]
            self._exchange.post(self.NAME, posted[self.NAME])

    def hear(self, votes: Vector) -> None:
        """Decide whether all nodes stop now, given their votes (n_nodes,)."""
        log = self._joint
        self._heard += 1
        if self.is_joint:
            total = float(np.add.reduce(votes))
            limit = self.rule.tolerance * max(abs(total), 1.0)
            factor = float(rules.over(abs(total - self._total), limit))
            if factor >= 1.0:
                log.unmet = Unmet(self._heard, factor)
            log.enter(self._heard, factor < 1.0, lambda t: log.unmet)
            if rules.is_sampled(self._heard):
                log.sample(self._heard, factor)
            self._total = total
        else:
            log.held = log.held + 1 if votes.all() else 0
        self._agreed = log.held >= log.patience

    def log_of_stop(self) -> CriteriaLog:
        return self._joint if self.is_joint else super().log_of_stop()

    def done(self, t: int) -> bool:
        return self._agreed

    def reopen(self, tolerance: float) -> None:
        super().reopen(tolerance)
        self._agreed, self._joint.held = False, 0
        self.state.posted.pop(self.NAME, None)

    def save(self) -> Vector:
        seen = self._joint.save(), (self._heard, self._total)
        return np.concatenate([super().save(), *seen])

    def restore(self, saved: Matrix) -> None:
        super().restore(saved)
        if saved.shape[1] > rules.SAVED:
            self._joint.restore(saved[:1, rules.SAVED : -2])
            self._heard, self._total = int(saved[0, -2]), float(saved[0, -1])
