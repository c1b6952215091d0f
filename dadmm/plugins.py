"""Problems of others' making: what they must have."""

from __future__ import annotations

MEMBERS = {
    "layout": "layout; set it in the constructor, to Layout.of(coef=(d,)) or the like",
    "init": "method init(rng), which returns starting parameters (size,)",
    "expect": "method expect(theta), which may return None",
    "prox": "method prox(theta, stats, centre, weight), which returns the new (size,)",
    "objectives": "method objectives(thetas, stats), which returns f of each row",
}


def absent(problem: object) -> str | None:
    """Return the first member that a problem lacks, with what it is for."""
    for name, what in MEMBERS.items():
        found = getattr(problem, name, None)
        if found is None or not (name == "layout" or callable(found)):
            return what
    return None
