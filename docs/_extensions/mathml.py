"""Formulas as MathML, which browsers draw by themselves: no script and no font."""

import re

from docutils import nodes
from docutils.utils.math import latex2mathml

# Without a font for formulas, Chromium does not stretch it; site.css draws a line.
BRACE = re.compile(r"<mo[^>]*>{</mo>(?=\s*<mtable[^>]*cases)")


def _inline(translator, node):
    translator.body.append(_drawn(translator, node, block=False))
    raise nodes.SkipNode


def _displayed(translator, node):
    formula = _drawn(translator, node, block=True)
    translator.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


def _drawn(translator, node, *, block: bool) -> str:
    """Return a formula; one that cannot be read is a warning, hence an error."""
    code = node.astext()
    try:
        return BRACE.sub("", latex2mathml.tex2mathml(code, as_block=block))
    except Exception as error:  # the module has classes of its own for each fault
        translator.document.reporter.warning(f"cannot read the formula {code}: {error}")
        return ""


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_displayed, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
