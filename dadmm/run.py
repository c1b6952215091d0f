"""``python -m dadmm.run``, which is the same as ``dadmm run``."""

import sys

from dadmm import __main__ as dadmm

if __name__ == "__main__":
    sys.exit(dadmm.main(["run", *sys.argv[1:]]))
main = dadmm.main_of("run")
