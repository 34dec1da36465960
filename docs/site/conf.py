"""Sphinx makes the site from what site_pages.py has written. `meson compile docs` runs it (docs/meson.build)."""
import gc
import os
import pathlib
import sys

SITE = pathlib.Path(__file__).parent
sys.path[:0] = [str(SITE), str(SITE.parents[1] / "python")]

from sphinx import addnodes
from sphinx.domains.c import CObject

import pretended_modules
from plain_docstrings import to_rst

gc.disable()  # Sphinx loads each page many times: collections took half of its time, and it ends soon

project = "mimo-bridge"
copyright = "its authors"
version = release = os.environ["MIMO_SITE_VERSION"]
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = f"mimo-bridge {release}"
html_static_path = [str(SITE / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
highlight_language = "text"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

breathe_projects = {"mimo-bridge": os.environ["MIMO_SITE_XML"]}
breathe_default_project = "mimo-bridge"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False

# The package is read without PyTorch and Megatron-LM, whose classes it subclasses.
pretended_modules.install()
autodoc_mock_imports = ["torch", "megatron", "transformers", "torchtitan", "numpy"]
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"


# The contents of a page list functions and types. Sphinx 5 has that for Python, and leaves it to each other domain.
IN_CONTENTS = ("function", "struct", "enum", "type")


def name_in_contents(declaration, signature):
    names = [name.astext() for name in signature.findall(addnodes.desc_name)]
    return names[0] if names and names[0][0] != "[" and declaration.objtype in IN_CONTENTS else ""


CObject._toc_entry_name = name_in_contents
CObject._object_hierarchy_parts = lambda declaration, signature: (name_in_contents(declaration, signature),)


def setup(app):
    app.connect("autodoc-process-docstring", lambda app, what, name, of, options, lines: to_rst(lines))
