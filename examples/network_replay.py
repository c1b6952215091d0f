"""
Predict a run on another network
================================

Record a run once, and predict its time on other networks.

Which is faster, a ring or a complete graph? Exact messages or short ones? It depends on
the network. A run records the size of every message, and a simulation plays the
messages on a modelled network: a local one, long lines, or radio.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dadmm.run import main as run
from dadmm.show.style import BLUE, GREEN, GREY, ORANGE, STYLE
from dadmm.timing.network import Network
from dadmm.timing.replay import Replay, Trace

plt.rcParams.update(STYLE)

# %%
# Record
# ------
# ``run`` is the command ``dadmm run``, with the same arguments. All 20 nodes run in
# this process, and the folder of the run has the messages.

folder = tempfile.TemporaryDirectory()
settings = {
    "ring": ["--topology", "ring"],
    "ring,\n4 bits": ["--topology", "ring", "--payload", "quantised:4"],
    "complete": ["--topology", "complete"],
}
traces = {}
for k, (name, words) in enumerate(settings.items()):
    out = str(Path(folder.name, f"run-{k}"))
    run(["--nodes", "20", "--init", "shared", "--quiet", "--out", out, *words])
    traces[name] = Trace.read(out)

# %%
# A run in one process computes all nodes together, and does not show the time of one
# node. So we say what we assume, 0.5 ms for each node and iteration.
# Leave this out for runs under ``mpiexec`` with a core for each rank.

for name, trace in traces.items():
    work = np.full_like(trace.solve, 0.5e-3)
    traces[name] = replace(trace, solve=work, update=np.zeros_like(work))

# %%
# Predict
# -------
# The networks are presets; a TOML file of your own describes another one
# (:doc:`/docs/communication`). The breakdown says what the seconds are, on the critical
# path.

names = {"lan": "local network", "wan": "long lines", "wireless": "radio"}
networks, found = {}, {}
for preset, title in names.items():
    network = Network.read(preset)
    *_, link = network.links.values()  # the longest links, between hosts or sites
    numbers = f"{1e3 * link.latency:g} ms, {8e-6 * link.bandwidth:g} Mbit/s"
    networks[preset] = f"{title}: {numbers}"
    print(networks[preset])
    for name, trace in traces.items():
        found[preset, name] = played = Replay(trace, network)
        print(
            f"    {' '.join(name.split()):12} {len(trace.solve):3} iterations, "
            f"{played.bytes / 1e6:5.2f} MB, {played.seconds:5.2f} s"
        )

# %%
# Over long lines latency decides. The complete graph needs fewer iterations, and its
# sums in set-up and at the end need fewer steps, so it is faster. By radio all
# neighbours hear one message, so the complete graph sends few. Short messages bring the
# iterations of the ring to about the same time, and set-up and end take longer there.

figure, axes = plt.subplots(1, 3, figsize=(8, 3.8), layout="constrained")
for axis, (preset, title) in zip(axes, networks.items(), strict=True):
    parts = [found[preset, name].breakdown for name in traces]
    bottom = np.zeros(len(parts))
    for label, colour, causes in (
        ("computing", GREY, ("compute", "stragglers")),
        ("latency", BLUE, ("latency",)),
        ("bytes on the wire, and queues", ORANGE, ("transmission", "queueing")),
        ("set-up and end", GREEN, ("sums",)),
    ):
        height = [sum(getattr(part, cause) for cause in causes) for part in parts]
        axis.bar(list(traces), height, 0.7, bottom, color=colour, label=label)
        bottom += height
    for place, total in enumerate(bottom):
        axis.text(place, total, f"{total:.2g} s", ha="center", va="bottom", fontsize=8)
    axis.set_title(title.replace(": ", "\n"))
    axis.margins(y=0.1)
axes[0].set_ylabel("predicted time of the run (s)")
handles = axes[0].get_legend_handles_labels()
figure.legend(*handles, loc="outside lower center", ncols=4)
figure.suptitle("D-PPCA on 20 nodes: the same runs on three networks")
figure.savefig("network_replay.png")
