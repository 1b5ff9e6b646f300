"""The report of a run: one page that can be opened anywhere and sent to anyone.

Everything in it is read from the run folder: what the notebooks stored with ``write_result``, how
the executed notebooks ended, the settings and the environment. Costs a second and about 5 MB,
nearly all of it plotly.js, which is inside so that the figures need no network. Does not: compute
a number, judge one, or run anything.
"""

import json
import math
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from workbench.errors import DataError
from workbench.pages import script_json
from workbench.run_folder import RunFolder


def write_report(run: RunFolder) -> Path:
    """Write ``report.html`` from what is in the run folder. Raises DataError when there is no folder."""
    if not run.path.is_dir():
        raise DataError(f"{run.path}: no such run folder; give one that `workbench run --out` made")
    run.report.write_text(report_html(run), encoding="utf-8")
    return run.report


def report_html(run: RunFolder) -> str:
    """The page as text."""
    endings = notebook_endings(run.notebooks)
    results = {result["notebook"]: result for result in run.all_results()}
    sections = [
        {
            "name": name,
            "result": results.get(name, {"title": name, "summary": "", "numbers": [], "figures": []}),
            "ending": endings.get(name),
            "links": [
                (kind, f"notebooks/{name}.{ending}")
                for kind, ending in (("page", "html"), ("notebook", "ipynb"))
                if (run.notebooks / f"{name}.{ending}").exists()
            ],
        }
        for name in sorted({*results, *endings})
    ]
    below = [figure for section in sections for figure in section["result"]["figures"]]
    top = [dict(figure) for figure in below if figure["headline"]]
    figures = []
    for figure in top + below:
        figure["id"] = f"figure-{len(figures) + 1}"
        figures.append({"id": figure["id"], **{k: figure["figure"].get(k) for k in ("data", "layout")}})
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters.update(value=format_value, seconds=_seconds)
    return page.from_string(_PAGE).render(
        run=run,
        sections=sections,
        tiles=[(s["name"], n) for s in sections for n in s["result"]["numbers"] if n["headline"]],
        top=top,
        stopped=[s for s in sections if s["ending"] and s["ending"]["status"] != "done"],
        started=min((e["started"] for e in endings.values()), default="")[:16].replace("T", " "),
        tables=[
            (title, _rows(_read(run.path / file)))
            for title, file in (("Environment", "environment.json"), ("Settings", "config.json"))
        ],
        style=Markup(_STYLE),
        script=Markup(_SCRIPT),
        plotly=Markup(get_plotlyjs()) if figures else "",
        figures=Markup(script_json(figures)),
    )


def notebook_endings(folder: Path) -> dict[str, dict[str, Any]]:
    """How each executed notebook in ``folder`` ended: status, cell, cells, problem, seconds, started."""
    endings = {}
    for path in sorted(folder.glob("*.ipynb")):
        metadata = nbformat.read(path, as_version=4).metadata
        if "workbench" in metadata:
            endings[path.stem] = dict(metadata["workbench"])
    return endings


def format_value(value: Any) -> str:
    """A number for people: four significant digits, whole digits kept, thousands set apart.

    ``0.123456`` is ``0.1235``, ``12345.6`` is ``12,346``, ``1e-7`` is ``1e-07``; text stays as it is.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "unknown time"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _rows(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, value) rows."""
    if isinstance(value, dict):
        return [row for key, item in value.items() for row in _rows(item, f"{name}.{key}" if name else key)]
    return [] if value is None and not name else [(name, "not known" if value is None else str(value))]


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ run.path.name }} · run report</title>
<style>{{ style }}</style>
</head>
<body>
<header>
<p class="kind">Run report</p>
<h1>{{ run.path.name }}</h1>
{% if started %}
<p class="quiet">Started {{ started }}</p>
{% endif %}
</header>
<main>
{% for section in stopped %}
<p class="stopped" role="alert"><strong>{{ section.name }} {{ section.ending.status }}</strong>
in cell {{ section.ending.cell }} of {{ section.ending.cells }}
{%- if section.ending.problem %}: {{ section.ending.problem }}{% endif %}</p>
{% endfor %}
{% if tiles %}
<ul class="tiles">
{% for name, number in tiles %}
<li><a href="#{{ name }}"><span class="label">{{ number.name }}</span>
<span class="big">{{ number.value | value }}
{% if number.unit %}
 <small>{{ number.unit }}</small>
{% endif %}
</span></a></li>
{% endfor %}
</ul>
{% endif %}
{% if top %}
<div class="top">
{% for figure in top %}
<figure><div class="plot" id="{{ figure.id }}"></div><figcaption>{{ figure.caption }}</figcaption></figure>
{% endfor %}
</div>
{% endif %}
{% if not sections %}
<p>No notebook has run in this folder and none has stored a result.</p>
{% endif %}
{% for section in sections %}
<section id="{{ section.name }}">
<h2>{{ section.result.title }}</h2>
{% if section.result.summary %}
<p class="summary">{{ section.result.summary }}</p>
{% elif section.ending %}
<p class="quiet">This notebook stored no result.</p>
{% endif %}
{% if section.result.numbers %}
<div class="wide"><table>
<thead><tr><th>Number</th><th class="value">Value</th><th>Unit</th><th>How it was measured</th></tr></thead>
<tbody>
{% for number in section.result.numbers %}
<tr><td>{{ number.name }}</td><td class="value">{{ number.value | value }}</td>
<td>{{ number.unit }}</td><td class="quiet">{{ number.note }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{% for figure in section.result.figures %}
<figure><div class="plot" id="{{ figure.id }}"></div><figcaption>{{ figure.caption }}</figcaption></figure>
{% endfor %}
<p class="quiet">{{ section.name }}
{% if section.ending %} · {{ section.ending.status }} in {{ section.ending.seconds | seconds }}{% endif %}
{% for kind, link in section.links %}
 · <a href="{{ link | urlencode }}">{{ kind }}</a>
{% endfor %}
</p>
</section>
{% endfor %}
{% for title, rows in tables %}
<section>
<h2>{{ title }}</h2>
{% if rows %}
<div class="wide"><table class="plain"><tbody>
{% for name, value in rows %}
<tr><th scope="row">{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}
</tbody></table></div>
{% else %}
<p class="quiet">Not recorded in this run folder.</p>
{% endif %}
</section>
{% endfor %}
</main>
<footer><p class="quiet">Run folder: <code>{{ run.path }}</code></p></footer>
{% if plotly %}
<script>{{ plotly }}</script>
<script>const FIGURES = {{ figures }};
{{ script }}</script>
{% endif %}
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --quiet: #61676e; --line: #e2e5e9; --page: #fff; --tile: #f6f7f9;
  --link: #1558b0; --bad: #a3241b; --bad-page: #fdf0ee; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --quiet: #9aa1a9; --line: #31363c; --page: #16181b;
  --tile: #1f2226; --link: #82b1f5; --bad: #ff9d92; --bad-page: #36201e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC",
  sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.kind { font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; color: var(--quiet); margin: 0; }
.quiet, figcaption { color: var(--quiet); font-size: .88rem; }
.summary { max-width: 46rem; }
.stopped { border-left: 4px solid var(--bad); background: var(--bad-page); padding: .7rem 1rem; margin: 1.25rem 0 0; }
.stopped strong { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .75rem; list-style: none;
  padding: 0; margin: 1.5rem 0 0; }
.tiles a { display: flex; flex-direction: column; justify-content: space-between; gap: .3rem; height: 100%;
  padding: .8rem .9rem; border-radius: .5rem; background: var(--tile); color: inherit; text-decoration: none; }
.label { font-size: .82rem; line-height: 1.3; color: var(--quiet); }
.big { font-size: 1.4rem; line-height: 1.2; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.big small { font-size: .8rem; color: var(--quiet); }
.top { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.top figure { min-width: 0; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .75rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
thead th, .plain th { font-weight: 500; color: var(--quiet); }
.plain td { overflow-wrap: anywhere; }
.value { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1.25rem 0; }
.plot { width: 100%; }
footer { margin-top: 2rem; }
code { font-size: .88rem; overflow-wrap: anywhere; }
"""

_SCRIPT = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const css = getComputedStyle(document.documentElement);
  const ink = css.getPropertyValue("--ink").trim(), line = css.getPropertyValue("--line").trim();
  const axis = {color: ink, gridcolor: line, zerolinecolor: line};
  return {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: ink}, axis: axis};
}
function themed(layout) {
  const {axis, font, ...rest} = theme(), out = {...layout, ...rest, font: {...layout.font, ...font}, autosize: true};
  delete out.width;
  if (window.matchMedia("(pointer: coarse)").matches) out.dragmode = false;  // a finger scrolls the page
  for (const key of new Set(["xaxis", "yaxis", ...Object.keys(layout)]))
    if (/^[xy]axis[0-9]*$/.test(key)) out[key] = {...layout[key], ...axis};
  return out;
}
function draw() {
  for (const f of FIGURES)
    Plotly.react(f.id, f.data, themed(f.layout || {}), {responsive: true, displayModeBar: false});
}
draw();
dark.addEventListener("change", draw);
"""
