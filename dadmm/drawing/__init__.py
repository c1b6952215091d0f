"""Figures of runs and of the paper's experiments, and ``python -m dadmm.plot``.

Modules other than `plot` need matplotlib. A figure is a function from arrays to a
matplotlib figure; none opens a window or changes matplotlib's global state. Colours are
from Okabe and Ito; dashes, markers, widths and hatches show the same in greyscale.
It may import `core`, `graphs`, `penalty`, `admm`, `solver` and `runs`.
"""
