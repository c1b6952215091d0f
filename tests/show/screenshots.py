"""Make the picture of README and docs/report.md: ``python -m tests.show.screenshots``.

It needs Chromium and Playwright (the extras `report` and `browser`).
"""

import io
import tempfile
from pathlib import Path

from PIL import Image

from dadmm import run
from dadmm.__main__ import main_of
from tests.support.browser import Opened, browser

OUT = Path(__file__).parents[2] / "docs" / "img" / "report.png"


def main() -> None:
    """Make a run, open its page, and save its top and the part about its network."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        assert (
            run.main(["--nodes", "20", "--quiet", "--out", folder, "--overwrite"]) == 0
        )
        assert main_of("report")([folder]) == 0
        page = Opened(chromium, Path(folder, "report.html"), size=(1200, 1000)).page
        for key in ["Home", *["ArrowRight"] * 44]:
            page.locator("#frame").press(key)
        page.evaluate("document.activeElement.blur()")
        names = ("header", ".cursor", "#network")
        shots = [page.locator(name).screenshot() for name in names]
        page.context.close()
    parts = [Image.open(io.BytesIO(shot)) for shot in shots]
    whole = Image.new("RGB", (parts[0].width, sum(part.height for part in parts)))
    for k, part in enumerate(parts):
        whole.paste(part, (0, sum(before.height for before in parts[:k])))
    whole.quantize(128).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
