"""The penalties of all edges: each end proposes one, and both use one per edge."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

import numpy as np

from dadmm.admm.local import Local, edge_factors
from dadmm.admm.mail import Mail
from dadmm.admm.state import Nodes
from dadmm.comm.sending import Turn
from dadmm.core.errors import ConfigError, shown
from dadmm.penalty.schemes import Observation, Scheme


class Penalties:
    """Adapt the penalties by a scheme.

    With symmetric coupling an edge has the mean of both proposals. If each end has its
    own, as printed in the paper, the sum of all multipliers changes by ``1/2 sum_edges
    (eta_ij - eta_ji) (theta_i - theta_j)`` in each iteration, and the nodes agree on a
    wrong point. The first penalties may depend on the curvature of each f_i, ``known``
    by original number of the node, or measured by ``local``.
    """

    NAME = "residuals"

    def __init__(
        self,
        nodes: Nodes,
        scheme: Scheme,
        mail: Mail,
        local: Local,
        known: Mapping[int, float] | None,
    ) -> None:
        state, work, incidence = nodes.state, nodes.work, nodes.incidence
        self.state, self.work, self.scheme, self.mail = state, work, scheme, mail
        self.exchange, self.curvature_seconds = nodes.exchange, 0.0
        if scheme.eta0 == "auto":
            if known is None:
                began, curvature = monotonic(), local.curvatures()
                self.curvature_seconds = monotonic() - began
            else:
                curvature = np.array([known[i] for i in nodes.names.tolist()])
            factors = edge_factors(nodes.topology, nodes.arcs)
            self.proposed = np.repeat(curvature, incidence.degrees) * factors
        else:  # NaN is unknown
            self.proposed = np.full(len(state.eta), float(scheme.eta0 or np.nan))
        self._least, self._most = np.empty(len(work.total)), np.empty(len(work.total))
        self._find_least = incidence.reducer(np.minimum, work.probes, self._least)
        self._find_most = incidence.reducer(np.maximum, work.probes, self._most)
        self._obs = Observation(
            t=0, incidence=incidence, objective=work.objective,
            previous=state.objective, probes=work.probes, f_min=self._least,
            f_max=self._most, primal=work.primal, dual=work.dual, theta=work.shared,
            centre=work.centre, weight=work.weight, sent=state.sent,
            received=state.received, anchors=state.anchors, drift=work.drift,
            multipliers=state.multipliers, eta=state.eta,
        )  # fmt: skip

    def check(self, method: str) -> None:
        """Raise unless a method of the scheme returned arrays with a row per edge."""
        found, n_edges = self.state.penalty, len(self.state.eta)
        name = f"{method} of the scheme {type(self.scheme).__name__}"
        rows = found if isinstance(found, dict) else {}
        shapes = {key: getattr(array, "shape", ()) for key, array in rows.items()}
        fits = all(shape[:1] == (n_edges,) for shape in shapes.values())
        if not fits or shapes.get("eta") != (n_edges,):
            got = ", ".join(f"{key!r}: {shape}" for key, shape in shapes.items())
            raise ConfigError(
                f"{name} must return a dict of arrays with a row for each of the "
                f"{n_edges} edges, and with the key 'eta' of shape ({n_edges},), got "
                f"{got or shown(found)}"
            )
        # a penalty may be unknown before the first message
        eta = found["eta"]
        if method != "init" and not ((eta > 0.0) & np.isfinite(eta)).all():
            raise ConfigError(f"{name} must return positive, finite penalties 'eta'")

    def adapt(self, turn: Turn) -> None:
        """Adapt the penalties, unless no payload was sent in this iteration."""
        state, obs = self.state, self._obs
        if self.scheme.needs_global_residuals:
            self._share_residuals()
        if turn.idle:
            state.idle += 1
            return
        obs.t = turn.t - int(state.idle)
        if self.scheme.probes:
            self._find_least()
            self._find_most()
            np.minimum(self._least, obs.objective, out=self._least)
            np.maximum(self._most, obs.objective, out=self._most)
        if len(state.eta):
            state.penalty = self.scheme.update(state.penalty, obs)
            if obs.t == 1:
                self.check("update")
            if self.scheme.couples:
                mine = state.sending.get("eta_sent", self.mail.outbox.eta)
                theirs = state.sending.get("eta_received", self.mail.inbox.eta)
                np.add(mine, theirs, out=state.eta)
                state.eta *= 0.5
            else:
                state.eta[...] = state.penalty["eta"]
        state.objective[...] = self.work.objective

    def _share_residuals(self) -> None:
        """Read the residuals of the whole network, and post those of this process."""
        posted, work = self.state.posted, self.work
        self._obs.global_residuals = None
        if self.NAME in posted:
            squares = np.sum(self.exchange.read(self.NAME) ** 2, axis=0)
            self._obs.global_residuals = tuple(np.sqrt(squares).tolist())
        posted[self.NAME] = np.column_stack([work.primal, work.dual])
        self.exchange.post(self.NAME, posted[self.NAME])
