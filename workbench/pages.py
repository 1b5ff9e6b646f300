"""Executed notebooks as pages that show their figures without a network.

nbconvert leaves plotly figures out of its HTML and loads five scripts from a CDN. Here a figure
becomes a div and a script, all pages of a folder share one ``plotly.min.js`` beside them, and
nothing is loaded from elsewhere. Costs 0.7 s and 0.3 MB a page, 5 MB a folder
(2026-11-29, one notebook of two cells). Does not: typeset
formulas, draw diagrams (both need a CDN), or keep widgets alive; a page shows their text.
"""

import html
import json
from copy import deepcopy
from pathlib import Path
from typing import Any, Mapping

import nbformat
from nbconvert import HTMLExporter
from plotly.offline import get_plotlyjs

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PLOTLY_FILE = "plotly.min.js"

# The blocks of nbconvert's lab template that load something from elsewhere, emptied.
_TEMPLATE = """
{%- extends 'index.html.j2' -%}
{%- block html_head_js -%}<script src="plotly.min.js"></script>{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""


def write_pages(folder: Path) -> list[Path]:
    """Write a page beside every executed notebook in ``folder``, and the script they share."""
    notebooks = sorted(folder.glob("*.ipynb"))
    if notebooks:
        (folder / PLOTLY_FILE).write_text(get_plotlyjs(), encoding="utf-8")
    pages = []
    for path in notebooks:
        page = path.with_suffix(".html")
        page.write_text(page_html(nbformat.read(path, as_version=4), path.stem), encoding="utf-8")
        pages.append(page)
    return pages


def page_html(notebook: nbformat.NotebookNode, title: str) -> str:
    """The page of ``notebook``, which is left as it is. The page expects PLOTLY_FILE beside it."""
    shown = deepcopy(notebook)
    shown.metadata.pop("widgets", None)
    shown.metadata["title"] = title
    figures = 0
    for cell in shown.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            data.pop(WIDGET_VIEW, None)
            if PLOTLY in data:
                figures += 1
                output["data"] = {
                    "text/html": figure_html(data[PLOTLY], f"figure-{figures}", data.get("text/plain", ""))
                }
    exporter = HTMLExporter(raw_template=_TEMPLATE)
    page, _ = exporter.from_notebook_node(shown)
    return page


def figure_html(figure: Mapping[str, Any], identity: str, description: str = "") -> str:
    """A div called ``identity`` and the script that draws ``figure`` (data, layout) in it."""
    return (
        f'<div id="{identity}" class="figure" role="img" aria-label="{html.escape(description)}"></div>'
        f"<script>Plotly.newPlot({script_json(identity)}, {script_json(figure['data'])}, "
        f"{script_json(figure.get('layout', {}))}, {{responsive: true, displaylogo: false}});</script>"
    )


def script_json(value: Any) -> str:
    """``value`` as JSON that can stand in a script element: no text in it can end the element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
