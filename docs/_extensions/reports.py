"""Report pages of real runs: made with the site, in its folder ``reports``."""

import subprocess
import sys
import tempfile
from pathlib import Path

RING = "--nodes 20 --topology ring"
HOSPITALS = (
    "--nodes 3 --problem logistic --data examples/hospitals/site-{rank}.csv "
    "--target readmitted --features age,sex,ward,pressure,smoker --on-missing mean"
)
SCHEMES = ("snap", "nap", "ap", "vp")
#: by name of the page: the arguments of `dadmm run`, by name of the run
PAGES = {
    "first-run": {"first": "--nodes 20"},
    "hospitals": {"hospitals": HOSPITALS},
    "schemes": {name: f"{RING} --scheme {name}" for name in SCHEMES},
}


def write_pages(app, error):
    if error or app.builder.name != "html":
        return
    pages = Path(app.outdir, "reports")
    pages.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for page, runs in PAGES.items():
            made = [f"{folder}/{name}" for name in runs]
            for out, arguments in zip(made, runs.values(), strict=True):
                dadmm(app.srcdir, "run", *arguments.split(), "--out", out)
            dadmm(app.srcdir, "report", *made, "--out", str(pages / f"{page}.html"))


def dadmm(project, *arguments):
    program = Path(sys.executable).with_name("dadmm")
    command = [program, *arguments]
    subprocess.run(command, cwd=project, capture_output=True, timeout=300, check=True)


def setup(app):
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
