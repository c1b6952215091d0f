"""Make the picture of README and docs/report.md: ``python -m tests.show.screenshots``.

It needs Chromium and Playwright (the extras `report` and `browser`).
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from dadmm import report, run
from tests.support.browser import Opened, browser

OUT = Path(__file__).parents[2] / "docs" / "img" / "report.png"
RUN = ["--nodes", "20", "--quiet"]  # the bare command
FRAME = 44  # of the slider, which counts from iteration 1


def main() -> None:
    """Make a run, open its page, and save its top and the part about its network."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        place = Path(folder, "run")
        assert run.main([*RUN, "--out", str(place)]) == 0
        assert report.main([str(place)]) == 0
        page = Opened(chromium, place / "report.html", size=(1200, 1000)).page
        page.locator("#frame").focus()
        page.keyboard.press("Home")
        for _ in range(FRAME):
            page.keyboard.press("ArrowRight")
        page.evaluate("document.activeElement.blur()")
        parts = [Image.open(io.BytesIO(page.locator(name).screenshot()))
                 for name in ("header", ".cursor", "#network")]  # fmt: skip
        page.context.close()
    whole = Image.new("RGB", (parts[0].width, sum(part.height for part in parts)))
    for k, part in enumerate(parts):
        whole.paste(part, (0, sum(before.height for before in parts[:k])))
    whole.quantize(128).save(OUT, optimize=True)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
