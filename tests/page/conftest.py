"""What tests of pages share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_pictures(request, monkeypatch):
    """Leave out the pictures, which take most of the time, unless a test needs them."""
    if request.node.get_closest_marker("slow") or "pictures" in request.fixturenames:
        return
    parts = pytest.importorskip("dadmm.page.parts")
    monkeypatch.setattr(parts, "picture", lambda figure: b"")


@pytest.fixture
def pictures():
    """Ask for the pictures of pages."""
