"""Formulas as MathML, which browsers draw by themselves: no script and no font."""

from docutils import nodes
from docutils.utils.math import latex2mathml, pick_math_environment, wrap_math_code


def _inline(translator, node):
    _write(translator, node.astext(), block=False)


def _displayed(translator, node):
    code = node.astext()
    code = wrap_math_code(code, as_block=True) if _is_plain(code) else code
    translator.body.append('<div class="math">')
    if node.get("number"):
        translator.body.append(f'<span class="eqno">({node["number"]})</span>')
    _write(translator, code, block=True)
    translator.body.append("</div>\n")


def _is_plain(code: str) -> bool:
    return pick_math_environment(code) == "equation*" and r"\begin{" not in code


def _write(translator, code: str, *, block: bool) -> None:
    """Append a formula; one that cannot be read is a warning, hence an error."""
    try:
        translator.body.append(latex2mathml.tex2mathml(code, as_block=block))
    except Exception as error:  # the module has classes of its own for each fault
        translator.document.reporter.warning(f"cannot read the formula {code}: {error}")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_displayed, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
