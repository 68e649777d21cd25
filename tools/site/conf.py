# The configuration of Sphinx for `make site`. tools/site.sh collects the pages in its source folder.
project = "fedmesh"
copyright = "the fedmesh authors, Apache-2.0"
extensions = ["myst_parser"]
root_doc = "docs/README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/node_modules", "**/testdata"]
# The levels of headings in the pages are those of GitHub, which allows more than Sphinx expects.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "toc.not_included"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
html_title = "fedmesh"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/fedmesh/fedmesh/",
    "source_branch": "main",
    "source_directory": "",
}
