"""The built site: its links, and that its pages load nothing from elsewhere.

``./launch/docs`` builds it before it runs these tests.
"""

from __future__ import annotations

import sys

import pytest

from tests.docs.site import faults_of
from tests.support.processes import ROOT

SITE = ROOT / "docs" / "_build" / "html"
PAGE = '<html><body id="top"><h1 id="a b">A</h1>{}</body></html>'


def test_all_links_of_the_site_are_right():
    if not SITE.exists():
        pytest.skip("the site is not built; run ./launch/docs")
    assert faults_of(SITE) == []


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ('<a href="sub/other.html?q=1#a%20b">x</a>', 0),
        ('<a href="#top">x</a><img src="picture.png">', 0),
        ('<a href="https://arxiv.org/abs/1506.08928">x</a>', 0),
        ('<a href="mailto:someone">x</a><img src="data:image/png;base64,">', 0),
        ('<a href="absent.html">x</a>', 1),
        ('<a href="sub/other.html#b">x</a>', 1),
        ('<a href="../outside.html">x</a>', 1),
        ('<img src="absent.png">', 1),
        ('<script src="https://cdn.example.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//example.org/a.css">', 1),
    ],
)
def test_a_wrong_address_is_found(tmp_path, body, faults):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.html").write_text(PAGE.format(""))
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(PAGE.format(body))

    assert len(faults_of(tmp_path)) == faults
    (tmp_path / "a.css").write_text('@import "https://example.org/a.css";')
    assert len(faults_of(tmp_path)) == faults + 1
    assert len(faults_of(tmp_path / "sub" / "absent")) == 1


def test_no_bar_stretches_and_every_index_is_beside_its_letter(monkeypatch):
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    import mathml

    monkeypatch.delitem(sys.modules, "mathml")
    norm = mathml.drawn(r"\| \bar\theta_i^t \| < |x|", block=True)
    cases = mathml.drawn(r"\begin{cases} a & b \\ c & d \end{cases}", block=True)

    assert norm.count('stretchy="false"') == 4
    assert "<msubsup>" in norm
    assert "munder" not in norm
    assert "{" not in cases
    assert 'class="cases"' in cases
