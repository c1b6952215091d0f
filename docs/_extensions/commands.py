"""The directive ``commands``: a section for each command, with the help it prints."""

import os
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from dadmm import __main__


class Commands(SphinxDirective):
    """Show what ``dadmm NAME --help`` prints, for each name."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(__main__.__file__)  # read again if it changes
        found: list[nodes.Node] = []
        for name, (_, what, _) in __main__.COMMANDS.items():
            section = nodes.section(ids=[name], names=[name])
            section += nodes.title("", f"dadmm {name}")
            section += nodes.paragraph("", f"{what[0].upper()}{what[1:]}.")
            shown = printed(name)
            section += nodes.literal_block(shown, shown, language="none")
            self.state.document.note_explicit_target(section)
            found.append(section)
        return found


def printed(name: str) -> str:
    program = Path(sys.executable).with_name("dadmm")
    return subprocess.run(
        [program, name, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout


def setup(app):
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
