"""What staging costs: bars of the measured copies, beside what the article says."""

import plotly.graph_objects as go

from workbench.train.staging import ARMS, ARTICLE_MS, Staging
from workbench.views.show import BLUE, GREY, figure, rounded


def staging_bars(measured: Staging) -> tuple[go.Figure, str]:
    """Medians in milliseconds with their quartiles, the article's two numbers in grey below; and a sentence."""
    found = [measured.milliseconds(arm) for arm in ARMS]
    middle, lower, upper = zip(*found)
    bars = go.Bar(
        x=rounded(middle, 2),
        y=list(ARMS.values()),
        orientation="h",
        marker_color=BLUE,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": rounded([u - m for u, m in zip(upper, middle)], 2),
            "arrayminus": rounded([m - low for m, low in zip(middle, lower)], 2),
        },
        name="here",
    )
    told = go.Bar(
        x=list(ARTICLE_MS),
        y=["article: without pinned memory", "article: with pinned memory"],
        orientation="h",
        marker_color=GREY,
        name="article, size not stated",
    )
    title = f"Staging {measured.megabytes:g} MiB"
    picture = figure(bars, told, title=title, x="milliseconds (median, quartiles)", height=380)
    picture.update_yaxes(autorange="reversed", automargin=True)
    fresh, reused, disk = (measured.milliseconds(arm)[0] for arm in ("fresh", "reused", "disk"))
    single, double = (measured.milliseconds(arm)[0] for arm in ("single", "double"))
    count = len(measured.seconds["fresh"])
    return picture, (
        f"{measured.megabytes:g} MiB, medians of {count}: reused memory {reused:.1f} ms, new memory {fresh:.1f} ms "
        f"({fresh / reused:.1f} x), a file with its flush {disk:.1f} ms ({disk / reused:.1f} x); two buffers take "
        f"{double / single:.2f} x the time of one. The article: {ARTICLE_MS[0]} to {ARTICLE_MS[1]} ms "
        f"({ARTICLE_MS[0] / ARTICLE_MS[1]:.1f} x) for pinned memory, of a size it does not state."
    )
