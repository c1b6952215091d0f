"""Run the main job once for each command line of a JSON file, all in one start.

Usage: each.py CASES.json REPORT.json. The report has, for each case, the exit code of
every rank and what every rank wrote to stderr, and what rank 0 printed.
"""

import io
import json
import sys
from contextlib import redirect_stderr
from pathlib import Path

from mpi4py import MPI

from dadmm.run import main


def run(arguments: list[str]) -> tuple[int, str, str]:
    out, err, before = io.StringIO(), io.StringIO(), sys.stdout
    sys.stdout = out  # ranks other than 0 replace it
    try:
        with redirect_stderr(err):
            code = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    finally:
        sys.stdout = before
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    ended = {name: run(arguments) for name, arguments in cases.items()}
    everyone = MPI.COMM_WORLD.gather(ended)
    if everyone is not None:
        report = {}
        for name in cases:
            codes, outs, errs = zip(*(rank[name] for rank in everyone), strict=True)
            report[name] = {"codes": codes, "out": outs[0], "err": errs}
        Path(sys.argv[2]).write_text(json.dumps(report))
