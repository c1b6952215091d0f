"""The directive ``command``: the help of a command, as the command prints it."""

import os
import subprocess
import sys

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Command(SphinxDirective):
    """``command:: python -m dadmm.plot`` shows ``--help``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        line = self.arguments[0]
        words = line.split()
        if words[0] == "python":
            words[0] = sys.executable
        shown = subprocess.run(
            [*words, "--help"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=self.env.srcdir,
            env={**os.environ, "COLUMNS": "88"},
        ).stdout
        block = nodes.literal_block(shown, shown, language="none")
        block["classes"].append("command")
        return [block]


def setup(app):
    app.add_directive("command", Command)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
