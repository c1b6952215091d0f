"""Check command lines of ``dadmm.run``, as a program in the environment of a job.

It reads a JSON list of command lines. It prints a JSON object: ``settings``, those
that apply to the run of each command line, and ``resumable``, the names that may change
when a run is resumed.
"""

import json
import sys

from dadmm.cli.config import FREE, RunConfig
from dadmm.core.errors import DadmmError


def main() -> int:
    """Print the settings and return 0, or the first error and return 2."""
    settings = []
    for arguments in json.load(sys.stdin):
        try:
            settings.append(RunConfig.from_argv(arguments)[0].applied())
        except DadmmError as error:
            print(error, file=sys.stderr)
            return 2
    json.dump({"settings": settings, "resumable": sorted(FREE)}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
