"""The module `dadmm.core.files`, loaded by its path because dadmm imports numpy."""

from __future__ import annotations

import importlib.util

from launch.base.environment import PROJECT

_spec = importlib.util.spec_from_file_location(
    "plain_files_of_dadmm", PROJECT / "dadmm" / "core" / "files.py"
)
assert _spec is not None
assert _spec.loader is not None
files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(files)
