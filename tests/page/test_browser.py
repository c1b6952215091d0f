"""The report page in a real browser: it draws, moves, answers keys, loads nothing."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the extra `report` is not installed")
pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

from dadmm import report, run
from tests.support.browser import NARROW, Opened, browser
from tests.support.pages import make_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(3)>"
EDGES = """() => [...document.querySelectorAll(".edges line")].map(
    (line) => `${line.getAttribute("class")} ${line.getAttribute("stroke-width")}`)"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return pages by name."""
    root = tmp_path_factory.mktemp("pages")
    more = ("--record-edges", "--max-iter", "30")
    nap = make_run(root / "nap", *more, "--edge-sleep", "0.9", "--record-angle")
    vp = make_run(root / "vp", *more, "--scheme", "vp")
    solid = root / "sfm"
    assert run.main(["--problem", "sfm", "--quiet", "--out", str(solid)]) == 0
    rows = np.random.default_rng(0).normal(size=(40, 3)).tolist()
    lines = "".join(",".join(map(repr, row)) + "\n" for row in rows)
    (root / "a.csv").write_text(f'"{EVIL}",x2,x3\n{lines}')
    table = ("--quiet", "--nodes", "2", "--data", str(root / "a.csv"))
    evil = root / "<script>alert(2)"
    assert run.main([*table, "--n-components", "2", "--out", str(evil)]) == 0
    made = {"nap": [nap], "two": [nap, vp], "solid": [solid], "evil": [evil]}
    for name, folders in made.items():
        words = [*map(str, folders), "--out", str(root / f"{name}.html")]
        assert report.main(words) == 0
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


@pytest.mark.parametrize("name", ["nap", "two", "solid", "evil"])
def test_a_page_draws_everything_and_asks_for_nothing(opened, name):
    """Also in a narrow window, in which it does not scroll sideways."""
    shown = opened(name, size=NARROW)
    plots = shown.page.locator(".canvas")
    for k in range(plots.count()):
        assert plots.nth(k).locator(".main-svg").count() > 0
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
    assert shown.page.locator("#main img:not(.still)").count() == 0

    assert (shown.errors, shown.outside, shown.dialogs) == ([], [], [])


def test_the_slider_moves_edges(opened):
    shown = opened("nap")
    last = shown.page.evaluate(EDGES)
    shown.page.locator("#frame").focus()
    shown.page.keyboard.press("Home")
    first = shown.page.evaluate(EDGES)

    assert len(first) == len(last) == 7
    assert first != last
    assert any(" over " in edge for edge in last)  # budgets are spent at the end only
    assert not any(" over " in edge for edge in first)
    assert shown.page.locator("#frame-words").inner_text() == "1 of 30"
    seen = []
    for _ in range(29):
        shown.page.keyboard.press("ArrowRight")
        seen += shown.page.evaluate(EDGES)
    assert any(" idle " in edge for edge in seen)
    assert shown.page.evaluate(EDGES) == last


def test_play_runs_to_the_end_and_can_be_paused(opened):
    shown = opened("nap")
    # in one call, so that no delay of this process lets it run on
    seen = shown.page.evaluate(
        """async () => {
            const find = (name) => document.getElementById(name);
            const [play, frame] = [find("play"), find("frame")];
            const wait = () => new Promise((done) => setTimeout(done, 700));
            play.click();
            const found = [play.textContent, Number(frame.value)];
            await wait();
            found.push(Number(frame.value));
            play.click();
            found.push(play.textContent, Number(frame.value));
            await wait();
            return [...found, Number(frame.value)];
        }"""
    )
    assert seen[:2] == ["Pause", 0]
    assert seen[2] > 0
    assert seen[3] == "Play"
    assert seen[4] == seen[5]
    shown.page.locator("#play").click()
    shown.until("document.getElementById('frame').value == 29")
    shown.until("document.getElementById('play').textContent == 'Play'")


def test_an_edge_is_chosen_by_click_by_key_and_by_list(opened):
    page = opened("nap").page
    thick = "() => document.getElementById('plot-eta').data.at(-1).name"
    page.locator("#edge").select_option("0 – 1")  # noqa: RUF001
    assert page.evaluate(thick) in ("edge 0 – 1", "1 to 0")  # noqa: RUF001
    page.locator("#network-0").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#edge").input_value() == "0 – 2"  # noqa: RUF001
    assert page.locator(".halo").get_attribute("visibility") == "visible"
    page.locator("#network-0 [data-edge='5']").dispatch_event("click")
    chosen = page.locator("#edge").input_value()
    assert chosen != "0 – 2"  # noqa: RUF001
    assert chosen in page.locator("#readout").inner_text()
    assert "of" in page.locator("#readout td").last.inner_text()  # of a budget


def test_the_keyboard_reaches_all_controls_and_shows_where_it_is(opened):
    page = opened("nap").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement)"
            ".outlineStyle]"
        )
        reached.append(name)
        if name:
            assert outline != "none", name
    wanted = {"log-iterations", "play", "frame", "network-0", "edge"}
    assert wanted <= set(reached)
    order = [name for name in reached if name in wanted]
    assert order[:3] == ["log-iterations", "play", "frame"]


def test_without_scripts_there_are_pictures_and_tables(opened):
    shown = opened("nap", scripts=False)
    page = shown.page
    pictures = page.locator("img.still")
    assert pictures.count() == 4  # convergence, network, penalties, traffic
    for k in range(4):
        assert pictures.nth(k).is_visible()
        assert pictures.nth(k).bounding_box()["height"] > 150
    assert page.locator("#network-0").is_visible()
    assert not page.locator("#play").is_visible()
    assert not page.locator("#plot-0").is_visible()
    assert "JavaScript is off" in page.locator("body").inner_text()
    assert shown.errors == []


def test_the_page_follows_the_colours_of_the_system(opened):
    shown = opened("nap", dark=True)
    page = shown.page
    look = """() => {
        const colour = (at) => getComputedStyle(at.el)[at.name];
        const html = { el: document.documentElement, name: "backgroundColor" };
        const tick = document.querySelector("#plot-0 .xtick text");
        return [colour(html), colour({ el: tick, name: "fill" })];
    }"""

    def sums():
        colours = page.evaluate(look)
        return [sum(map(int, c.partition("(")[2].strip(")").split(",")[:3]))
                for c in colours]  # fmt: skip

    paper, ink = sums()
    assert paper < 150 < 500 < ink
    page.emulate_media(color_scheme="light")
    shown.until(
        "getComputedStyle(document.querySelector('#plot-0 .xtick text')).fill"
        " == 'rgb(27, 27, 31)'"
    )
    paper, ink = sums()
    assert ink < 150 < 700 < paper


def test_the_structure_turns_with_the_mouse_and_with_buttons(opened):
    shown = opened("solid")
    page = shown.page
    eye = (
        "() => JSON.stringify(document.querySelector('[id^=plot-solid]').layout.scene)"
    )
    plot = page.locator("[id^=plot-solid]")
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
    assert shown.errors == []
