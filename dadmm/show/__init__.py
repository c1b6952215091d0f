"""What people see of runs: figures, the report page, ``dadmm plot`` and ``report``.

`panels` describes figures of runs by the classes of `figure`; `to_matplotlib` and
`html` draw them. Colours are by Okabe and Ito; dashes, markers, widths and hatches show
the same in greyscale. It may import `core`, `graphs`, `penalty`, `admm`, `comm`,
`solver`, `runs`, `models` and `timing`.
"""
