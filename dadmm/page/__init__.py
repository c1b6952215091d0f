"""The report page of runs, and ``python -m dadmm.report``.

Modules other than `command` need plotly and matplotlib. A section is a function from
runs to HTML; what it draws is a plotly figure as a dict, and a picture that is shown
without JavaScript. `plots.js` draws the figures in the browser.
It may import `core`, `graphs`, `penalty`, `admm`, `comm`, `solver`, `runs`, `models`,
`timing` and `drawing`.
"""
