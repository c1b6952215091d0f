"""Faults and bad inputs. Processes are forked, so numpy must not have threads."""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
