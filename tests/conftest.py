"""What holds for all tests: which are run, and what each finds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out slow tests, unless DADMM_ALL is set or only slow ones are asked for."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    if os.environ.get("DADMM_ALL") or len(slow) == len(items):
        return
    if slow and "slow" not in config.option.markexpr:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that a test has changed."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
