"""A page shows its figures without a network, and no text in a notebook can break out of it."""

import json
import re
from html.parser import HTMLParser

import nbformat
import plotly.graph_objects as go
from tiny_notebooks import make_notebook

from workbench.pages import PLOTLY, WIDGET_VIEW, page_html, script_json, write_pages

NASTY = "</script><script>alert(1)</script><!-- 你好"


def notebook_with_figure():
    notebook = make_notebook("fig", "slider")
    figure = json.loads(go.Figure(go.Scatter(y=[1, 2.5], name=NASTY)).to_json())
    notebook.cells[0].source = "# 标题\n$x^2$ ![a](b.png)"
    notebook.cells[2].outputs = [
        nbformat.v4.new_output("display_data", data={PLOTLY: figure, "text/plain": 'loss "2.5"\n损失'}),
        nbformat.v4.new_output("stream", name="stdout", text="<b>你好</b>\n"),
    ]
    notebook.cells[3].outputs = [
        nbformat.v4.new_output("execute_result", data={WIDGET_VIEW: {"model_id": "m"}, "text/plain": "<slider: 3>"})
    ]
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"m": {"a": "WIDGETSTATE"}}}}
    return notebook, figure


class Elements(HTMLParser):
    """The script and link elements of a page, with what is in the scripts."""

    def __init__(self, page):
        super().__init__()
        self.scripts, self.addresses, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.inside = tag == "script"
        if tag in ("script", "link"):
            self.addresses += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)


def test_figures_show_offline():
    notebook, figure = notebook_with_figure()
    before = nbformat.writes(notebook)
    page = page_html(notebook, "01_a")
    assert nbformat.writes(notebook) == before
    found = Elements(page)
    assert found.addresses == ["plotly.min.js"]
    assert len(found.scripts) == 1
    called = re.fullmatch(r"Plotly\.newPlot\((.*), \{responsive: true, displaylogo: false\}\);", found.scripts[0], re.S)
    identity, data, layout = json.loads(f"[{called[1]}]")
    assert data == figure["data"] and layout == figure["layout"]
    assert f'id="{identity}"' in page
    assert "<title>01_a</title>" in page


def test_text_is_whole_and_escaped():
    page = page_html(notebook_with_figure()[0], "01_a")
    assert "标题" in page and "&lt;b&gt;你好&lt;/b&gt;" in page and "损失" in page
    assert "alert(1)</script>" not in page and "WIDGETSTATE" not in page
    assert "&lt;slider: 3&gt;" in page


def test_pages_share_one_script(tmp_path):
    assert write_pages(tmp_path) == [] and list(tmp_path.iterdir()) == []
    for name in ("01_a", "02_b"):
        nbformat.write(make_notebook("1"), tmp_path / f"{name}.ipynb")
    assert write_pages(tmp_path) == [tmp_path / "01_a.html", tmp_path / "02_b.html"]
    assert "Plotly" in (tmp_path / "plotly.min.js").read_text(encoding="utf-8")


def test_script_json_is_json_without_markup():
    value = {"a": [NASTY, 1.5, None], "<b>": True}
    text = script_json(value)
    assert "<" not in text and "你好" in text and json.loads(text) == value
