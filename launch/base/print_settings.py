"""Check command lines of ``dadmm.run``, as a program in the environment of a job.

It reads a JSON list of command lines, and has the number of ranks, on which some
defaults depend, as its argument. It prints a JSON object: ``settings``, those
that apply to the run of each command line, and ``resumable``, the names that may change
when a run is resumed.
"""

import json
import sys

from dadmm.core.errors import DadmmError
from dadmm.runs.config import FREE, RunConfig


def main() -> int:
    """Print the settings and return 0, or the first error and return 2."""
    settings = []
    for arguments in json.load(sys.stdin):
        try:
            config = RunConfig.from_argv(arguments)[0]
            config.settle(int(sys.argv[1]))
            settings.append(config.applied())
        except DadmmError as error:
            print(error, file=sys.stderr)
            return 2
    json.dump({"settings": settings, "resumable": sorted(FREE)}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
