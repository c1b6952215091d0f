"""The report page in a real browser: it draws, moves, answers keys, loads nothing.

The picture of README and docs/report.md is made by::

    python -m tests.show.test_browser
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("plotly", reason="the extra `report` is not installed")

from dadmm import run
from dadmm.__main__ import main_of
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import read_run
from tests.support.browser import NARROW, Opened, browser
from tests.support.pages import Parsed, make_run, unfinish
from tests.support.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(3)>"
EDGES = """() => [...document.querySelectorAll(".edges line")].map(
    (line) => `${line.getAttribute("class")} ${line.getAttribute("stroke-width")}`)"""
HEAT = "() => document.querySelector('[data-node]').style.getPropertyValue('--heat')"


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(run_named, tmp_path_factory):
    """Return pages by name."""
    root = tmp_path_factory.mktemp("pages")
    rows, file = np.random.default_rng(0).normal(size=(40, 3)), root / "a.csv"
    np.savetxt(file, rows, delimiter=",", header=f'"{EVIL}",x2,x3', comments="")
    solid, evil = root / "sfm", root / "<script>alert(2)"
    for words in (
        ["--problem", "sfm", "--out", solid],
        ["--nodes", 2, "--data", file, "--n-components", 2, "--out", evil],
    ):
        assert run.main([*map(str, words), "--quiet"]) == 0
    nap, vp, bare = map(run_named, ("nap", "vp", "bare"))
    made = {"nap": [nap], "two": [nap, vp], "bare": [bare], "solid": [solid]}
    made["evil"] = [evil]
    for name, folders in made.items():
        words = [*map(str, folders), "--out", str(root / f"{name}.html")]
        assert main_of("report")(words) == 0
    return {name: root / f"{name}.html" for name in made}


@pytest.fixture
def opened(chromium, pages):
    """Return a function that opens a page by its name."""
    found: list[Opened] = []

    def open_page(name: str, **options) -> Opened:
        found.append(Opened(chromium, pages[name], **options))
        return found[-1]

    yield open_page
    for each in found:
        each.context.close()
        assert (each.errors, each.outside, each.dialogs) == ([], [], [])


@pytest.mark.parametrize("name", ["nap", "two", "solid", "evil", "bare"])
def test_a_page_draws_everything_and_asks_for_nothing(opened, name):
    """Also in a narrow window, in which it does not scroll sideways."""
    page = opened(name, size=NARROW).page
    for plot in page.locator(".canvas").all():
        assert plot.locator(".main-svg").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
    assert page.locator("#main img").count() == 0


def test_the_slider_moves_edges_and_nodes(opened):
    page = opened("nap").page
    last, hot = page.evaluate(EDGES), page.evaluate(HEAT)
    page.locator("#frame").focus()
    page.keyboard.press("Home")
    first = page.evaluate(EDGES)

    assert len(first) == len(last) == 7
    assert first != last
    assert page.evaluate(HEAT) != hot  # nodes agree better at the end
    assert any(" over " in edge for edge in last)  # budgets are spent at the end only
    assert not any(" over " in edge for edge in first)
    assert page.locator("#frame-words").inner_text() == "1 of 30"
    seen = []
    for _ in range(29):
        page.keyboard.press("ArrowRight")
        seen += page.evaluate(EDGES)
    assert any(" idle " in edge for edge in seen)
    assert page.evaluate(EDGES) == last
    for place, words in (("edge='2'", "η"), ("node='2'", "disagreement")):
        hit = page.locator(f"#network-0 [data-{place}]")
        hit.dispatch_event("pointermove", {"bubbles": True, "clientX": 9, "clientY": 9})
        assert words in page.locator("#tip").inner_text()


def test_play_runs_to_the_end_and_can_be_paused(opened):
    shown = opened("nap")
    # in one call, so that no delay of this process lets it run on
    before, at, paused, later = shown.page.evaluate(
        """async () => {
            const find = (name) => document.getElementById(name);
            const now = () => `${find("play").textContent} ${find("frame").value}`;
            const wait = () => new Promise((done) => setTimeout(done, 700));
            const click = () => (find("play").click(), now());
            return [click(), await wait().then(now), click(), await wait().then(now)];
        }"""
    )
    assert before == "Pause 0"
    assert at > before
    assert paused == later == at.replace("Pause", "Play")
    shown.page.locator("#play").click()
    shown.until("document.getElementById('frame').value == 29")
    shown.until("document.getElementById('play').textContent == 'Play'")


def test_an_edge_is_chosen_by_click_by_key_and_by_list(opened):
    page = opened("nap").page
    edge, readout = page.locator("#edge"), page.locator("#readout")
    first, second = "0 – 1", "0 – 2"  # noqa: RUF001
    edge.select_option(first)
    thick = page.evaluate("document.getElementById('plot-eta').data.at(-1).name")
    assert thick.startswith(f"edge {first}")
    below = "document.querySelector('.halo').nextSibling.className.baseVal"
    assert page.evaluate(below) == "edges"
    page.locator("#network-0").focus()
    page.keyboard.press("ArrowRight")
    assert edge.input_value() == second
    assert page.locator(".halo").get_attribute("visibility") == "visible"
    page.locator("#network-0 [data-edge='5']").dispatch_event("click")
    assert edge.input_value() != second
    assert edge.input_value() in readout.inner_text()
    assert re.search(r"spent.*\d of \d", readout.inner_text())
    page.locator("#network-0 [data-node='3']").dispatch_event("click")
    assert "node 3: disagreement" in readout.inner_text()


def test_the_keyboard_reaches_all_controls_and_shows_where_it_is(opened):
    page = opened("nap").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    outlines: dict[str, str] = {}
    for _ in range(80):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement)"
            ".outlineStyle]"
        )
        outlines.setdefault(name, outline)
    del outlines[""]
    assert "none" not in outlines.values()
    wanted = ["play", "frame", "across", "network-0", "edge"]
    reached = [name for name in outlines if name in wanted]
    assert sorted(reached) == sorted(wanted)
    assert reached[:3] == wanted[:3]


def test_without_scripts_there_are_the_outcome_and_tables(opened):
    page = opened("nap", scripts=False).page
    assert page.locator(".tiles li").count() == 6
    for name in (".badge", "#network-0", "#results table.loadings"):
        assert page.locator(name).is_visible()
    assert page.locator("table").count() > 5
    for name in ("#play", "#plot-0", "#readout"):
        assert not page.locator(name).is_visible()
    assert "JavaScript is off" in page.locator("body").inner_text()


def test_one_cursor_moves_all(opened):
    """A click on a plot moves slider, lines, networks, values and the table."""
    shown = opened("nap")
    page = shown.page
    before, edges = page.locator("#readout").inner_text(), page.evaluate(EDGES)
    plot = page.locator("#plot-1")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    at = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.move(*at)
    said = "document.querySelector('#plot-1').parentElement.querySelector('.values')"
    shown.until(f"!{said}.textContent.includes('iteration 30')")
    assert page.locator("#plot-1 .hoverlayer .hovertext").count() == 0
    assert page.locator("#frame-words").inner_text() == "30 of 30"  # hover moves none
    page.mouse.click(*at)
    shown.until("document.getElementById('frame').value < 29")
    t = int(page.locator("#frame-words").inner_text().partition(" ")[0])

    assert 5 < t < 20
    assert page.locator("#readout").inner_text() != before
    assert page.evaluate(EDGES) != edges
    lines = page.evaluate("""() => [...document.querySelectorAll(".now")].map((own) => {
        const box = own.parentElement.getBoundingClientRect();
        return (own.getBoundingClientRect().x - box.x) / box.width; })""")
    assert len(lines) >= 5
    assert max(lines) < 0.75  # none stays at the end
    for name in ("#network-0 + p", "#readout", ".values"):
        for each in page.locator(name).all_inner_texts():
            assert f"iteration {t}" in each


def test_criteria_are_drawn_over_bytes_and_seconds(opened, run_named):
    shown = opened("nap")
    ends = "() => document.getElementById('plot-1').data.at(-2).x.at(-1)"
    assert shown.page.evaluate(ends) == 30
    total = read_run(run_named("nap")).column("bytes").sum()
    shown.page.locator("#across").select_option("bytes")
    assert shown.page.evaluate(ends) == pytest.approx(total)
    shown.page.locator("#across").select_option("seconds")
    assert 0 < shown.page.evaluate(ends) < 60


def test_a_comparison_is_sorted(opened):
    table = opened("two").page.locator("table.sortable").first
    names = table.locator("tbody th").all_inner_texts()
    head = table.locator("thead th").nth(6)  # bytes
    head.click()
    first = table.locator("tbody th").all_inner_texts()
    head.click()
    assert table.locator("tbody th").all_inner_texts() == first[::-1]
    assert sorted(first) == sorted(names)


def test_printed_plots_are_whole(opened):
    """Each fits into its column, and all into the width of a sheet."""
    page = opened("nap", size=(720, 1000)).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    sizes = page.evaluate("""() => [...document.querySelectorAll(".canvas")].map(
        (own) => [own.getBoundingClientRect().right,
                  own.querySelector(".main-svg").clientWidth])""")
    assert len(sizes) > 5
    assert all(right <= 720 and width <= 330 for right, width in sizes), sizes
    assert not page.locator("#play").is_visible()


def test_a_page_of_a_run_that_goes_on_reloads_and_keeps_its_place(chromium, tmp_path):
    folder = make_run(tmp_path / "run", "--record-edges")
    unfinish(folder, 6, 7, edges=True)
    lock = RunFolder(folder)
    lock.lock(first=True)
    words = [sys.executable, "-m", "dadmm", "report", str(folder), "--every", "4"]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == f"{(folder / 'report.html').as_uri()}\n"
        shown = Opened(chromium, folder / "report.html")
        # in one call, because the page may reload between two
        shown.page.evaluate("""() => {
            const find = (name) => document.getElementById(name);
            find("edge").selectedIndex = 1;
            find("edge").dispatchEvent(new Event("change"));
            find("frame").value = 0;
            find("frame").dispatchEvent(new Event("input"));
            document.querySelector("#convergence details").open = true;
            document.first = true;
        }""")
        shown.until("document.first === undefined && document.querySelector('.now')")
        shown.until(
            "document.getElementById('frame-words').textContent === '1 of 7'"
            " && document.getElementById('edge').selectedIndex === 1"
            " && document.querySelector('#convergence details').open"
        )
        assert shown.errors == []
        shown.context.close()
    finally:
        lock.release()
    assert job.wait(timeout=300) == 0  # no process is at work in the folder any more
    job.stdout.close()
    assert Parsed((folder / "report.html").read_text("utf-8")).data["every"] == 0


def test_the_page_follows_the_colours_of_the_system(opened):
    shown = opened("nap", dark=True)
    page = shown.page
    look = """() => [[document.documentElement, "backgroundColor"],
        [document.querySelector("#plot-0 .xtick text"), "fill"]].map(([own, name]) => (
        getComputedStyle(own)[name].match(/\\d+/g).slice(0, 3).map(Number)
            .reduce((a, b) => a + b)))"""
    paper, ink = page.evaluate(look)
    assert paper < 150 < 500 < ink
    page.emulate_media(color_scheme="light")
    shown.until(f"({look})()[1] < 150")
    assert page.evaluate(look)[0] > 700


def test_the_structure_turns_with_the_mouse_and_with_buttons(opened):
    shown = opened("solid")
    page, plot = shown.page, shown.page.locator("#plot-solid")
    eye = "() => JSON.stringify(document.querySelector('#plot-solid').layout.scene)"
    plot.scroll_into_view_if_needed()
    before, box = page.evaluate(eye), plot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y + 40, steps=8)
    page.mouse.up()
    shown.until(f"({eye})() !== {before!r}")
    between = page.evaluate(eye)
    page.get_by_role("button", name="Turn left").click()
    shown.until(f"({eye})() !== {between!r}")


if __name__ == "__main__":
    picture = ROOT / "docs" / "img" / "report.png"
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        assert run.main(["--nodes", "20", "--quiet", "--out", f"{folder}/run"]) == 0
        assert main_of("report")([f"{folder}/run"]) == 0
        file = Path(folder, "run", "report.html")
        page = Opened(chromium, file, size=(1200, 1000)).page
        for key in ["Home", *["ArrowRight"] * 44]:
            page.locator("#frame").press(key)
        page.evaluate("document.activeElement.blur()")
        page.evaluate("""document.querySelectorAll("#main > :not(#network), footer")
            .forEach((own) => { own.style.display = "none"; })""")
        page.locator("body").screenshot(path=picture)
        page.context.close()
    Image.open(picture).quantize(128).save(picture, optimize=True)
