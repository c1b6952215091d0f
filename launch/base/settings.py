"""Check command lines of ``dadmm.run``: a JSON list of them in, their settings out.

Runs in the environment of a job, on behalf of launchers that need no numpy.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from dadmm.cli.config import RunConfig
from dadmm.core.errors import DadmmError


def main() -> int:
    """Print the settings of each command line, or the first mistake."""
    found = []
    for argv in json.load(sys.stdin):
        try:
            found.append(asdict(RunConfig.from_argv(argv)[0]))
        except DadmmError as error:
            print(error, file=sys.stderr)
            return 2
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
