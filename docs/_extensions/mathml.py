"""Formulas as MathML, which browsers draw by themselves: no script and no font.

Without a font for formulas a browser cannot stretch a character. With one, it would
stretch a norm bar as far as the letters beside it. So no bar and no brace stretches;
site.css draws the brace of cases and enlarges sums, with and without a font.
"""

import re
import xml.etree.ElementTree as ET
from html import unescape
from itertools import pairwise

from docutils import nodes
from docutils.utils.math import latex2mathml

ENTITY = re.compile(r"&(?!lt|gt|amp)\w+;")  # of HTML, unknown in XML
BARS = set("|‖∥{}")
SUMS = set("∑∏")


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
        return drawn(code, block)
    except Exception as error:  # the module has classes of its own for each fault
        translator.document.reporter.warning(f"cannot read the formula {code}: {error}")
        return ""


def drawn(code: str, block: bool) -> str:
    """Return the MathML of a formula."""
    text = latex2mathml.tex2mathml(code, as_block=block)
    text = ENTITY.sub(lambda found: unescape(found[0]), text)
    root = ET.fromstring(
        text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    )
    for element in root.iter():
        children = list(element)
        for brace, table in pairwise(children):
            if brace.text == "{" and "cases" in table.get("class", ""):
                element.remove(brace)
        if element.tag == "mo" and element.text in BARS:
            element.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
        if element.tag == "mo" and element.text in SUMS and block:
            element.attrib |= {"largeop": "false", "class": "sum"}
        if element.tag == "msup" and children[0].tag == "munderover":
            _put_index_beside(element, *children)
    return ET.tostring(root, encoding="unicode")


def _put_index_beside(whole: ET.Element, barred: ET.Element, power: ET.Element) -> None:
    """Mend a letter with a bar, an index and a power: docutils puts the index below.

    site.css draws the bar, which would touch the letter.
    """
    letter, index, _ = list(barred)
    whole.clear()
    whole.tag, box = "msubsup", ET.SubElement(whole, "mrow", {"class": "bar"})
    box.append(letter)
    whole.extend([index, power])


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_displayed, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
