"""Settings of the site; `./launch/docs` builds it.

The source folder of Sphinx is that of the project, not `docs`: so the pages of `docs`,
`benchmarks` and `topologies`, and the contributing page, are each a file in one place,
and their relative links are right on a forge and on the site.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_extensions"))
sys.path.insert(0, str(DOCS.parent))  # the examples import nothing else of the project

import sphinx_gallery.gen_gallery  # noqa: E402

import dadmm  # noqa: E402

# attributes of the package whose modules have other names
for name in ("datasets", "metrics", "shard"):
    sys.modules[f"dadmm.{name}"] = getattr(dadmm, name)

project = "dadmm"
author = "the dadmm developers"
copyright = f"{author}, BSD-3-Clause"
version = release = dadmm.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # of _extensions:
    "commands",  # the help of each command
    "gallery",  # thumbnails
    "mathml",  # formulas without scripts
    "reports",  # report pages of real runs
    "source_links",  # names in code font link to the API and to the source
]

# What is a page.
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = [
    "docs/**",
    "benchmarks/**.md",
    "examples/hospitals/README.md",
    "tests/campaigns/faults/README.md",
    "topologies/README.md",
    "C*.md",  # CONTRIBUTING and CHANGELOG
]
exclude_patterns = ["docs/_*", ".*", "runs", "dadmm", "launch", "**/GALLERY_HEADER*"]
templates_path = [str(DOCS / "_templates")]
nitpicky = True

# Markdown.
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "config.cache",  # sphinx-gallery's settings hold functions
    "misc.highlighting_failure",  # blocks of commands and of output have no language
]
highlight_language = "none"

# The API.
default_role = "literal"
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections have the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template lists them

# The gallery: every program of examples/ is run. Folders there are not galleries, also
# if they have a README, which is a page of its own.
sphinx_gallery.gen_gallery.get_subsections = lambda *_, **__: []
ORDER = [
    *("hospitals", "sklearn_estimators", "digits", "cameras", "sensors", "inpainting"),
    *("own_problem", "own_scheme", "mpi_program", "compressed_messages", "schedules"),
    *("resume", "network_replay", "paper_figure2", "paper_figure3"),
]


def position(file):
    """Return the key by which sphinx-gallery sorts a file; new ones come last."""
    name = Path(file).stem
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/gallery",
    "image_scrapers": ("gallery",),
    "thumbnail_size": (400, 280),
    "filename_pattern": r"\.py$",
    "parallel": 2,  # programs at a time
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "within_subsection_order": position,
    "show_signature": False,
    "write_computation_times": False,
}

# The pages in HTML. Nothing is loaded from elsewhere.
html_theme = "pydata_sphinx_theme"
html_title = "dadmm"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_context = {"default_mode": "auto"}
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_search_scorer = str(DOCS / "_static" / "search.js")
html_show_sourcelink = False
html_copy_source = False
html_additional_pages = {"index": "redirect.html"}
# pages without pages below them have no list of those
html_sidebars = dict.fromkeys(
    ("CHANGELOG", "CONTRIBUTING", "docs/index", "docs/start", "_modules/**"), ()
)
html_theme_options = {
    "logo": {"text": "dadmm"},
    "navbar_align": "left",
    "navigation_with_keys": False,
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def skip_foreign(app, what, name, thing, skip, options):
    """Leave out members that scikit-learn or Python define, and fields of tuples."""
    home = getattr(thing, "__module__", None) or "dadmm"
    field = str(getattr(thing, "__doc__", "")).startswith("Alias for field number")
    return True if field or not home.startswith("dadmm") else None


def link_gallery(app, docname, source):
    """Turn links to the folder of the examples into links to the gallery."""
    source[0] = source[0].replace("](../examples)", "](gallery/index.rst)")


def setup(app):
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("source-read", link_gallery)
