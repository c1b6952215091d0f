"""The check of a built site finds wrong links, and what is loaded from elsewhere."""

from __future__ import annotations

import pytest
from launch.site.check import faults_of

PAGE = '<html><body id="top"><h1 id="a b">A</h1>{}</body></html>'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.html").write_text(PAGE.format(""))
    (tmp_path / "picture.png").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    "body",
    [
        '<a href="sub/other.html#top">x</a>',
        '<a href="sub/other.html?q=1#a%20b">x</a>',
        '<a href="#top">x</a><img src="picture.png">',
        '<a href="https://arxiv.org/abs/1506.08928">x</a>',
        '<a href="mailto:someone">x</a><img src="data:image/png;base64,">',
        '<link rel="canonical" href="https://example.org/">',
    ],
)
def test_a_right_page_has_no_fault(site, body):
    (site / "index.html").write_text(PAGE.format(body))

    assert faults_of(site) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('<a href="absent.html">x</a>', "absent.html does not exist"),
        ('<a href="sub/other.html#b">x</a>', "has no such anchor"),
        ('<a href="#absent">x</a>', "has no such anchor"),
        ('<a href="../outside.html">x</a>', "does not exist"),
        ('<a href="https://arxiv/abs">x</a>', "is not an address"),
        ('<img src="absent.png">', "absent.png does not exist"),
        ('<script src="https://cdn.example.org/a.js"></script>', "not in the site"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "not in the site"),
    ],
)
def test_a_wrong_address_gets_a_sentence(site, body, words):
    (site / "index.html").write_text(PAGE.format(body))

    (fault,) = faults_of(site)
    assert fault.startswith("index.html")
    assert words in fault


@pytest.mark.parametrize(
    "style",
    [
        "@font-face {src: url('https://example.org/a.woff')}",
        '@import "https://example.org/a.css";',
    ],
)
def test_a_style_that_loads_from_elsewhere_is_found(site, style):
    (site / "a.css").write_text(style)

    assert faults_of(site) == ["a.css loads from elsewhere: https:"]


def test_a_site_without_pages_is_found(tmp_path):
    (fault,) = faults_of(tmp_path)

    assert "there is no page" in fault
