"""Settings of the documentation site. It is built without a network."""

from __future__ import annotations

from pathlib import Path

project = "airflow_occ_provider"
copyright = "the authors of airflow_occ_provider, Apache License 2.0"
_init = Path(__file__).parents[1] / "airflow_occ_provider" / "__init__.py"
release = next(
    line.split('"')[1] for line in _init.read_text().splitlines() if line.startswith("__version__")
)
version = release

extensions = ["myst_parser", "autoapi.extension"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autoapi_dirs = ["../airflow_occ_provider"]
autoapi_generate_api_docs = False
autoapi_keep_files = False
autoapi_add_toctree_entry = False
autoapi_python_class_content = "class"
autoapi_options = ["show-inheritance"]
autodoc_typehints = "none"
suppress_warnings = ["autoapi.python_import_resolution"]  # of constants without a docstring
python_maximum_signature_line_length = 80
add_module_names = False

# There is nothing to link to for Airflow's and Python's names without a network; ours must be found.
nitpick_ignore_regex = [("py:.*", r"(?!airflow_occ_provider\b).*")]

html_theme = "pydata_sphinx_theme"
html_title = "airflow_occ_provider"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "tutorial", "glossary")}  # they have no pages below
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
