"""What holds for all tests: which are run, and what each finds."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from dadmm.core import ranks

ALWAYS = {"deadline": None, "derandomize": True}  # whatever the load
ALWAYS["suppress_health_check"] = list(hypothesis.HealthCheck)
hypothesis.settings.register_profile("dadmm", **ALWAYS)
hypothesis.settings.load_profile("dadmm")
LONG = ("mpi", "timeout")  # markers of long tests
HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Start with the longest files; leave out slow tests.

    The longest files have tests over MPI or tests with their own time limit. With them
    first, the workers of pytest-xdist end at about the same time. Slow tests are run if
    DADMM_ALL is set or if only slow ones are asked for.
    """
    long = {item.path for item in items if any(map(item.get_closest_marker, LONG))}
    items.sort(key=lambda item: item.path not in long)
    slow = [item for item in items if item.get_closest_marker("slow")]
    if os.environ.get("DADMM_ALL") or len(slow) == len(items):
        return
    if slow and "slow" not in config.option.markexpr:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start in an empty folder, without a launcher; return the folder."""
    monkeypatch.chdir(tmp_path)
    for name in {name for pair in ranks.LAUNCHERS for name in pair}:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that a test has changed."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
