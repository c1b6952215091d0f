"""A page for the source of each module, with an anchor for each class and function.

`sphinx.ext.viewcode` has pages of modules in the API reference only; the pages on the
paper and on contributing name functions of all modules.
"""

import ast
import functools
import inspect
import posixpath
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = "_modules"


@functools.cache
def modules() -> dict[str, Path]:
    """Return the file of each module of the package, by its name."""
    found = {}
    for file in sorted((PROJECT / "dadmm").rglob("*.py")):
        parts = file.relative_to(PROJECT).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


@functools.cache
def lines(module: str) -> dict[str, int]:
    """Return the line of each class and function of a module, by qualified name."""
    found: dict[str, int] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for item in body:
            if isinstance(item, ast.ClassDef | ast.FunctionDef):
                decorated = [d.lineno for d in item.decorator_list]
                found.setdefault(prefix + item.name, min([item.lineno, *decorated]))
            if isinstance(item, ast.ClassDef):
                walk(item.body, f"{prefix}{item.name}.")

    walk(ast.parse(modules()[module].read_text("utf-8")).body, "")
    return found


def page_of(module: str) -> str:
    return posixpath.join(FOLDER, *module.split("."))


def find(name: str) -> tuple[str, str] | None:
    """Return the page and the anchor of a name such as ``dadmm.admm.loop.iterate``."""
    module, rest = name, ""
    while module and module not in modules():
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}".rstrip(".")
    if not module or module == "dadmm" or (rest and rest not in lines(module)):
        return None
    return page_of(module), rest


def link_signatures(app, doctree) -> None:
    """Add a link to the source to each signature of the API reference."""
    for signature in doctree.findall(addnodes.desc_signature):
        found = find(_defined(signature.get("module"), signature.get("fullname")))
        if found:
            page, anchor = found
            target = app.builder.get_relative_uri(app.env.docname, page)
            link = nodes.reference("", "", refuri=f"{target}#{anchor}", internal=True)
            link += nodes.inline("", "[source]", classes=["viewcode-link"])
            signature += link


def _defined(module: str | None, name: str | None) -> str:
    """Return where an object is defined, which may be another module."""
    thing = sys.modules.get(module or "")
    for part in (name or "").split("."):
        thing = inspect.getattr_static(thing, part, None) if thing else None
    thing = getattr(thing, "__func__", getattr(thing, "fget", None) or thing)
    where, what = (getattr(thing, k, None) for k in ("__module__", "__qualname__"))
    return f"{where}.{what}" if where and what else ""


def collect_pages(app) -> Iterator[tuple[str, dict, str]]:
    """Return the pages: a list of the modules, and the source of each."""
    index = posixpath.join(FOLDER, "index")
    for module, file in modules().items():
        page = page_of(module)
        code = file.read_text("utf-8")
        html = app.builder.highlighter.highlight_block(code, "python", linenos="inline")
        before, _, rest = html.partition("<pre>")
        rows = rest.split("\n")
        for name, line in lines(module).items():
            rows[line - 1] = f'<span class="anchor" id="{name}"></span>{rows[line - 1]}'
        up = app.builder.get_relative_uri(page, index)
        body = f'<p><a href="{up}">All modules</a></p><h1>{escape(module)}</h1>'
        body += before + "<pre>" + "\n".join(rows)
        yield page, {"title": module, "body": body, "parents": []}, "page.html"
    rows = [
        f'<li><a href="{app.builder.get_relative_uri(index, page_of(name))}">'
        f"<code>{escape(name)}</code></a></li>"
        for name in modules()
    ]
    body = f"<h1>Source of all modules</h1><ul>{''.join(rows)}</ul>"
    yield index, {"title": "Source", "body": body, "parents": []}, "page.html"


def setup(app):
    app.connect("doctree-read", link_signatures)
    app.connect("html-collect-pages", collect_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
