"""Ways of sending less, and runs to resume, that are compared to the last bit."""

from __future__ import annotations

from dadmm.comm.sending import Sending
from dadmm.graphs import topology
from dadmm.graphs.schedule import Schedule
from tests.support.programs import parity

DRAWN = {"init": "independent"}  # in units
RAW = {"coordinates": "raw"}
SHORT = {"tolerance": 0.0, "max_iter": 24, "budget0": 0.6}
OPTIONS = (
    {"payload": "float32"},
    {"payload": "float16"},
    {"payload": "quantised:5"},
    {"censor": 0.3, "censor_decay": 0.9},
    {"send_every": 3},
    {"edge_sleep": 0.7},
    {"payload": "quantised:3", "censor": 0.2, "edge_sleep": 0.7,
     "send_every": 2},
)  # fmt: skip
TURNS = ("", "matchings", "ring,star")
# so loose that the rule stops the runs
STOPPING = {"tolerance": 50.0, "max_iter": 80, "record_edges": True}


def cases(n_nodes: int) -> list:
    """Return the graph and the settings of every run."""
    cluster = topology.build("cluster", n_nodes)
    several = Schedule.build(["ring", "star"], n_nodes)
    graphs = {
        "": (cluster, None), "matchings": (cluster, Schedule.matchings(cluster)),
        "ring,star": (several.union, several),
    }  # fmt: skip
    chosen = [(turns, {}) for turns in TURNS[1:]]
    chosen += [("", it) for it in OPTIONS] + [(t, OPTIONS[-1]) for t in TURNS[1:]]
    found = [
        (*graphs[turns], {"sending": Sending(**it), "scheme": scheme, **SHORT} | raw)
        for turns, it in chosen
        for scheme, raw in (("snap", DRAWN), ("snap", RAW), ("nap", RAW))
    ]
    found = [(a, b, {**c, "record_edges": True}) for a, b, c in found]
    lossy = {"sending": Sending(drop_probability=0.2), "scheme": "fixed", **SHORT}
    late = {"sending": Sending(**OPTIONS[-1]), **STOPPING}
    for turns in TURNS:
        found += [(*graphs[turns], lossy), (*graphs[turns], late)]
    for agreement, wait in (("global", "poll"), ("neighbours", "block")):
        found.append((*graphs["matchings"], {**late, "agreement": agreement}))
        found.append((*graphs["matchings"], {**late, "wait": wait, "max_iter": 8}))
    return found


# most graphs have nodes of different degrees: rows are in order of degree
STOPPED = {"tolerance": parity.LOOSE["optimality"], "max_iter": 60}
JOINT = {"agreement": "global", "stopping": "objective", "max_iter": 60}
RESUMED = (
    ("ring", {"scheme": "snap", **parity.SHORT}),
    ("star", {"scheme": "vp_nap", **parity.SHORT}),
    ("star", {"scheme": "nap", "schedule": True, **parity.SHORT}),
    ("grid", {"scheme": "snap", **STOPPED}),
    ("grid", {"scheme": "global_balance", **parity.SHORT}),
    ("cluster", {"sending": Sending(**OPTIONS[-1]), "schedule": True, **parity.SHORT}),
    ("cluster", {"sending": Sending(edge_sleep=0.7, censor=0.1), **STOPPED}),
    ("chain", {"sending": Sending(payload="float16"), "coupling": "own",
               "scheme": "nap", **parity.SHORT}),
    ("chain", {"scheme": "fixed", "sending": Sending(drop_probability=0.2),
               **parity.SHORT}),
    ("complete", {"scheme": "global_balance", "tolerance": parity.LOOSE["objective"],
                  **JOINT}),
)  # fmt: skip
