"""How the documentation is built: MyST pages, the reference from docstrings, nothing from the network."""

import runpy
from pathlib import Path

from prunecast import __version__

for script in ("architecture", "commands"):  # files.md, commands.md
    runpy.run_path(str(Path(__file__).parents[1] / "scripts" / script), run_name="__main__")

project = "prunecast"
author = "The prunecast maintainers"
copyright = "The prunecast maintainers, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["cards.css"]
html_title = f"prunecast {__version__}"
# Links to files outside of this folder; tests/test_documents.py checks that every link's target exists.
suppress_warnings = ["myst.xref_missing"]

# The reference is built where there is neither a GPU nor the optional extras.
autodoc_mock_imports = ["cupy", "cupyx", "torch", "distributed", "optuna"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"


SECTIONS = ("Parameters", "Returns", "Raises", "Yields")


def section(paragraph: list[str]) -> list[str]:
    """A section of a docstring, `name : text` on each of its lines and what follows indented, as a list."""
    found = [f".. rubric:: {paragraph[0]}", ""]
    for line in paragraph[2:]:
        name, colon, text = line.partition(" : ")
        if line.startswith(" ") or not colon:
            found.append(f"  {line.strip()}" if line.startswith(" ") else f"* {line}")
        else:
            found.append(f"* **{name.replace('*', '')}**: {text}")
    return [*(line.replace("|", r"\|") for line in found), ""]


def prose(paragraph: list[str]) -> list[str]:
    """A paragraph of a docstring as reStructuredText: indented ones stay as they were typed."""
    if paragraph[0] in SECTIONS and len(paragraph) > 2 and set(paragraph[1]) == {"-"}:
        return section(paragraph)
    if any(line.startswith(" ") for line in paragraph):
        return ["::", "", *(f"    {line}" for line in paragraph), ""]
    return [*(line.replace("|", r"\|").replace("*", r"\*") for line in paragraph), ""]


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings here are plain text with aligned columns, so each paragraph is judged by its shape."""
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = [line for text in paragraphs for line in prose(text.strip("\n").split("\n"))]


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain_docstring)
