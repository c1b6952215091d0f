"""The whole page: sections in order, with style, scripts and data in one file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files

from plotly.offline import get_plotlyjs

from dadmm.core.version import __version__
from dadmm.drawing.figures import title
from dadmm.page import about, convergence, load, look, network, outcome, penalties
from dadmm.page.markup import embedded, text
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun

SECTIONS: dict[str, tuple[str, Callable[[Page, Sequence[PageRun]], str]]] = {
    "outcome": ("Outcome", outcome.top),
    "convergence": ("Convergence", convergence.section),
    "network": ("Network over time", network.networks),
    "penalties": ("Penalties and budgets", penalties.section),
    "traffic": ("Traffic", load.traffic),
    "time": ("Time and waiting", load.seconds),
    "results": ("Results", outcome.results),
    "settings": ("Settings and versions", about.section),
}
SCRIPTS = ("plots.js", "network.js", "curves.js", "player.js")


def build(runs: Sequence[PageRun]) -> str:
    """Return the page of some runs, without the first line of the file."""
    page = Page(runs)
    parts, links = [], []
    for name, (words, section) in SECTIONS.items():
        links.append(f'<li><a href="#{name}">{words}</a></li>')
        parts.append(
            f'<section id="{name}" aria-labelledby="{name}-title">'
            f'<h2 id="{name}-title">{words}</h2>{section(page, runs)}</section>'
        )
    data = {
        "figures": page.figures,
        "network": page.networks,
        "colours": {name: look.colours(name) for name in ("light", "dark")},
    }
    scripts = [_closed(get_plotlyjs()), "".join(map(_file, SCRIPTS))]
    style = look.stylesheet_colours() + _file("page.css")
    words = title(runs)
    return (
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(words)}</title><style>{style}</style></head><body>"
        '<a class="skip" href="#main">Skip to the report</a>'
        f'<header><h1>{text(words)}</h1><nav aria-label="Sections"><ul>{"".join(links)}'
        "</ul></nav></header>"
        '<noscript><p class="note">JavaScript is off: plots are pictures, and the '
        "network shows the last iteration.</p></noscript>"
        f'<main id="main">{"".join(parts)}</main>'
        f"<footer>Made by dadmm {text(__version__)}.</footer>"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def _file(name: str) -> str:
    return files("dadmm.page").joinpath(name).read_text("utf-8")


def _closed(script: str) -> str:
    """Return a script that cannot end its element early."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(scripts: Sequence[str]) -> str:
    """Return a policy by which a browser loads nothing and runs these scripts only."""
    hashes = (
        b64encode(sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
