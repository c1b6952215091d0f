"""Names in code font link to the API reference, or else to the source.

The pages stay plain Markdown: ``dadmm.solve`` in code font becomes a link to its page
of the API, ``penalty.equations.tau`` and ``admm/loop.py`` become links to the source,
``dadmm plot`` one to the help of the command, and ``docs/accuracy.md`` one to the page.
A link to a file of the package goes to its page, and one to an example to the gallery.
"""

import re

from docutils import nodes
from source_pages import find, modules
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from dadmm.__main__ import COMMANDS

NAME = re.compile(r"((?:\w+\.)*\w+)(?:\(.*\))?", re.S)
COMMAND = re.compile(rf"(?:python -m )?dadmm ({'|'.join(COMMANDS)})")


class Links(SphinxPostTransform):
    """Turn literals and links to files into links to pages."""

    default_priority = 200
    formats = ("html",)

    def run(self) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            parent = literal.parent
            if not isinstance(parent, nodes.reference | nodes.title) and (
                uri := self.of_name(literal.astext())
            ):
                link = nodes.reference("", "", refuri=uri, internal=True)
                literal.replace_self(link)
                link += literal
        for download in list(self.document.findall(addnodes.download_reference)):
            if uri := self.of_file(download.get("filename") and download["reftarget"]):
                link = nodes.reference("", "", *download.children, refuri=uri)
                link["internal"] = True
                download.replace_self(link)

    def of_name(self, text: str) -> str | None:
        if text.endswith(".md") and text[:-3] in self.env.found_docs:
            return self.page(text[:-3])
        if re.fullmatch(r"[\w/]+\.py", text):
            return self.source("dadmm." + text.removesuffix(".py").replace("/", "."))
        if match := COMMAND.fullmatch(text):
            return f"{self.page('docs/api/commands')}#{match[1]}"
        match = NAME.fullmatch(text)
        if not match or not ("." in match[1] or match[1][0].isupper()):
            return None
        objects = self.env.domaindata["py"]["objects"]
        for name in (match[1], f"dadmm.{match[1]}"):
            if entry := objects.get(name):
                return f"{self.page(entry.docname)}#{entry.node_id}"
            if "." in match[1] and (uri := self.source(name)):
                return uri
        return None

    def source(self, name: str) -> str | None:
        found = find(name)
        if not found:
            return None
        page, anchor = found
        return f"{self.page(page)}#{anchor}" if anchor else self.page(page)

    def of_file(self, target: str | None) -> str | None:
        target = (target or "").lstrip("/")
        file = self.env.srcdir / target
        for name, module in modules().items():
            if module == file:
                return self.source(name)
        page = f"docs/gallery/{file.stem}"
        if file.parent.name == "examples" and page in self.env.found_docs:
            return self.page(page)
        return None

    def page(self, name: str) -> str:
        """Return the address of a page, as seen from this one."""
        return self.app.builder.get_relative_uri(self.env.docname, name)


def setup(app):
    app.setup_extension("source_pages")
    app.add_post_transform(Links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
