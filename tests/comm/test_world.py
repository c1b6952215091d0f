"""Steps of all ranks that are checked by one collective."""

from __future__ import annotations

import pytest

from dadmm.comm.world import Checks, World, from_rank_0
from dadmm.core.errors import ConfigError, DadmmError
from tests.support.processes import mpiexec, program


def raises(error):
    def step():
        raise error

    return step


def test_steps_of_one_process_give_their_values():
    checks = Checks(World())

    assert checks.run(lambda: 5) == 5
    checks.compare(lambda: {"seed": "1"})
    assert checks.gather(a=1, b=[2]) == [{"a": 1, "b": [2]}]


def test_after_a_failure_further_steps_are_left_out():
    checks, done = Checks(World()), []
    checks.run(raises(ConfigError("no")))
    checks.run(lambda: done.append(1))
    checks.compare(lambda: done.append(2))

    with pytest.raises(ConfigError, match="no"):
        checks.gather()
    assert not done


def test_too_little_memory_is_an_error_of_the_input():
    checks = Checks(World())
    checks.run(raises(MemoryError()))

    with pytest.raises(DadmmError, match="not enough memory"):
        checks.gather()


def test_other_exceptions_are_raised_at_once():
    with pytest.raises(ZeroDivisionError):
        Checks(World()).run(lambda: 1 / 0)


def test_one_process_is_rank_0():
    assert from_rank_0(World(), lambda: "text") == "text"
    with pytest.raises(ConfigError, match="no"):
        from_rank_0(World(), raises(ConfigError("no")))


@pytest.mark.mpi
def test_the_first_step_that_fails_is_named_on_all_ranks():
    """Of several ranks the lowest; facts are compared in their turn."""
    ended = mpiexec(4, *program("checks.py"))

    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "fine",
        "DadmmError: rank 2: step of 2",
        "ConfigError: rank 3 has seed = 1 but rank 0 has 0; start all ranks with the "
        "same settings",
        "DadmmError: rank 1: step of 1",
        "ConfigError: of rank 0",
    ]
