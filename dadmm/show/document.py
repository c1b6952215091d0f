"""The whole page: sections in order, with style, scripts and data in one file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files

from plotly.offline import get_plotlyjs

from dadmm.core.version import __version__
from dadmm.runs.stored import StoredRun
from dadmm.show import about, convergence, cost, network, outcome, style
from dadmm.show.html import embedded, paragraph, text
from dadmm.show.page import Page
from dadmm.show.panels import subject, title

SECTIONS: dict[str, tuple[str, Callable[[Page], str]]] = {
    "results": ("Results", outcome.results),
    "convergence": ("Convergence", convergence.section),
    "network": ("Network", network.section),
    "cost": ("Traffic and time", cost.section),
    "settings": ("Settings and versions", about.section),
}
SCRIPTS = ("plots.js", "network.js", "cursor.js")
VERDICTS = {
    "certified": "The nodes agree, and the distance of the result from the solution "
    "for all rows in one place is bounded.",
    "stationary": "The nodes agree on one model, and their gradients cancel.",
    "stopped": "The nodes meet the stopping rule; no bound on the error is known.",
    "not converged": "The nodes do not meet the stopping rule.",
    "max_iter": "The run did all iterations that were asked for.",
}
CURSOR = (
    '<div class="cursor js" role="group" aria-label="Iteration">'
    '<button type="button" id="play" aria-pressed="false">Play</button>'
    '<label for="frame">Iteration</label>'
    '<input type="range" id="frame" min="0" max="0" value="0" step="1">'
    '<output id="frame-words" for="frame"></output></div>'
)


def build(runs: Sequence[StoredRun], every: float = 0) -> str:
    """Return the page of some runs, without the first line of the file.

    It loads itself again after ``every`` seconds, unless that is 0.
    """
    page = Page(runs)
    first, parts, links = outcome.top(page), [], []
    for name, (words, section) in SECTIONS.items():
        links.append(f'<li><a href="#{name}">{words}</a></li>')
        parts.append(
            f'<section id="{name}" aria-labelledby="{name}-title">'
            f'<h2 id="{name}-title">{words}</h2>{section(page)}</section>'
        )
    data = {
        "figures": page.figures,
        "network": page.network,
        "costs": page.costs,
        "colours": {name: style.page_colours(name) for name in ("light", "dark")},
        "every": every,
    }
    # a script that cannot end its element early
    plotly = get_plotlyjs().replace("</script", "<\\/script")
    scripts = [plotly.replace("<!--", "<\\!--"), "".join(map(_file, SCRIPTS))]
    badge = "" if page.is_comparison else outcome.badge(runs[0])
    about_it = "" if page.is_comparison else _rule(runs[0])
    return (
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(title(runs))}</title>"
        f"<style>{style.stylesheet_colours()}{_file('page.css')}</style></head><body>"
        '<a class="skip" href="#main">Skip to the report</a>'
        f"<header><h1>{badge} {text(subject(runs))}</h1>{about_it}{first}"
        f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav></header>'
        '<noscript><p class="note">JavaScript is off: there are no plots, and the '
        "network shows the last iteration.</p></noscript>"
        f'{CURSOR if page.recorded else ""}<main id="main">{"".join(parts)}</main>'
        f"<footer>Made by dadmm {text(__version__)}.</footer>"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def _rule(run: StoredRun) -> str:
    """Return what the status means, and by which rule the run ended."""
    verdict = VERDICTS.get(run.summary.get("status", ""), "")
    why = run.summary.get("why") or ""
    reason = f" {why[0].upper()}{why[1:]}." if why else ""
    rule = f"Rule {run.config.stopping}, tolerance {run.config.tolerance:g}."
    return paragraph(f"{verdict}{reason} {rule}")


def _file(name: str) -> str:
    return files("dadmm.show").joinpath(name).read_text("utf-8")


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
