"""Make the picture of docs/report.md: ``python -m tests.show.screenshots``.

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
    """Make a run, open its page, and save the part about its network."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        place = Path(folder, "run")
        assert run.main([*RUN, "--out", str(place)]) == 0
        assert report.main([str(place)]) == 0
        page = Opened(chromium, place / "report.html", size=(1200, 1000)).page
        page.locator("#frame").focus()
        page.keyboard.press("Home")
        for _ in range(FRAME):
            page.keyboard.press("ArrowRight")
        picture = page.locator("#network").screenshot()
        page.context.close()
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(128)
    image.save(OUT, optimize=True)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
