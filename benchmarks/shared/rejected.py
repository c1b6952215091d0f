"""Two penalty rules that the paper names and does not use.

They are scheme objects for `dadmm.solve`, here to measure what the paper says of them.
"""

import numpy as np

from dadmm.penalty import VP, equations
from dadmm.penalty.equations import PenaltyState
from dadmm.penalty.schemes import Observation, Scheme


class VPKept(VP):
    """`vp` without its reset: after t_max every penalty stays as it is.

    Section 3.1: "we end up with heterogeneously fixed penalty values which impacts the
    convergence of ADMM by yielding heavy oscillations near the saddle point".
    """

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        return state if obs.t >= self.t_max else super().update(state, obs)


class VPTau(Scheme):
    """Equation (4) with tau_ij in place of tau, until t_max; then reset.

    Section 3.4: "we found that this replacement yields little utility".
    """

    uses = ("eta0", "t_max", "residual_ratio")
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.t >= self.t_max:
            return state | {"eta": state["eta0"].copy()}
        direction = np.log2(self._balance(obs))  # 1, -1 or 0
        eta = state["eta"] * (1.0 + self._tau(obs)) ** direction
        return state | {"eta": equations.clamp(eta, state["eta0"])}
