"""Sphinx's options for the site, whose sources docs/site.py puts together: `make docs`."""

project = "tir"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "tir"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["pages"]  # of the explorer
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
nitpicky = True
