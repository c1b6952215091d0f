"""Thumbnails of the gallery show one panel of a picture, large enough to be seen."""

from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper
from sphinx_gallery.utils import scale_image

SIZE = (400, 280)  # pixels


def _get_sg_image_scraper():
    return scrape


def scrape(block, block_vars, gallery_conf):
    """Save the open figures, and the largest panel of each by itself."""
    folder = Path(gallery_conf["src_dir"], gallery_conf["gallery_dirs"], "images")
    panels = folder / "panels"
    panels.mkdir(parents=True, exist_ok=True)
    for number in plt.get_fignums():
        figure = plt.figure(number)
        figure.canvas.draw()
        panel = max(figure.axes, key=lambda axes: axes.bbox.width * axes.bbox.height)
        inches = panel.get_tightbbox().transformed(figure.dpi_scale_trans.inverted())
        file = panels / f"{Path(block_vars['src_file']).stem}.png"
        figure.savefig(file, bbox_inches=inches.padded(0.05), dpi=150)
    return matplotlib_scraper(block, block_vars, gallery_conf)


def make_thumbnails(app):
    folder = Path(app.srcdir, app.config.sphinx_gallery_conf["gallery_dirs"], "images")
    for panel in (folder / "panels").glob("*.png"):
        thumbnail = folder / "thumb" / f"sphx_glr_{panel.stem}_thumb.png"
        scale_image(str(panel), str(thumbnail), *SIZE)


def setup(app):
    app.connect("builder-inited", make_thumbnails, priority=900)  # after the gallery
    return {"parallel_read_safe": True, "parallel_write_safe": True}
