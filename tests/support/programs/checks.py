"""Texts of all ranks, and steps that fail on some of them, on four ranks."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from dadmm.comm.world import Checks, World, from_rank_0
from dadmm.core.errors import ConfigError, DadmmError, ShardError

WORLD = World(MPI.COMM_WORLD)
RANK = WORLD.rank


def fails_on(ranks, error=None):
    def step():
        if RANK in ranks:
            raise error or ShardError(f"step of {RANK}")
        return RANK

    return step


def told(steps, **own) -> str:
    """Return the error of a stage of steps."""
    checks = Checks(WORLD)
    try:
        for step, is_fact in steps:
            (checks.compare if is_fact else checks.run)(step)
        checks.gather(**own)
    except DadmmError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


if __name__ == "__main__":
    lengths = (0, 1, 55, 56, 57, 5000)
    for own in lengths:
        for longest in lengths:
            mine = "é" * (own // 2) if RANK else "x" * longest
            assert WORLD.told(mine) == ["x" * longest, *["é" * (own // 2)] * 3]
            assert WORLD.share(mine) == "x" * longest
    records = Checks(WORLD).gather(number=RANK, long="y" * 300 * RANK)
    assert [record["number"] for record in records] == [0, 1, 2, 3]
    said = [
        told([(fails_on([]), False), (lambda: {"seed": "1"}, True)]),
        told([(fails_on([2, 3]), False), (fails_on([0]), False)]),
        told([(lambda: {"seed": str(RANK // 3)}, True), (fails_on([0]), False)]),
        told([(fails_on([1]), False), (lambda: {"seed": str(RANK)}, True)]),
        told([(fails_on([0], ConfigError("of rank 0")), False)]),
    ]
    assert len(set(WORLD.told("\n".join(said)))) == 1
    if RANK == 0:
        print(*said, sep="\n")
    assert from_rank_0(WORLD, lambda: f"text of {RANK}") == "text of 0"
    with pytest.raises(DadmmError, match="step of 0"):
        from_rank_0(WORLD, fails_on([0, 1]))
