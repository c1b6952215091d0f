"""What people see of runs: figures, the report page, ``dadmm plot`` and ``report``.

`panels` describes figures of runs by the classes of `figure`. `to_matplotlib` draws
such a figure into a file and `to_plotly` on a page; only they need these libraries.
`document` makes the page, with the sections `outcome` and `network`, and the scripts
beside them move what is on it. Colours are by Okabe and Ito; dashes, markers, widths
and hatches show the same in greyscale.
It may import `core`, `graphs`, `penalty`, `admm`, `comm`, `solver`, `runs`, `models`
and `timing`.
"""
