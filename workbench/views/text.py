"""Text as it is seen: what cleaning changed in it, where tokens begin and where windows are cut."""

import html

from IPython.display import HTML

from workbench.data.cleaning import Cleaned
from workbench.data.windows import Windows

_SIGNS = {"\n": "\n", "\t": "⇥", "\r": "␍"}
_TINTS = ("#dbe8f6", "#fbe6cf", "#d9efe2", "#eadff5")


def marked_changes(raw: str, cleaned: Cleaned, limit: int = 1500) -> HTML:
    """The raw text with what cleaning removed struck out and what it replaced beside it, then the result."""
    out, at = [], 0
    for change in sorted(cleaned.changes, key=lambda c: (c.raw_start, c.raw_end)):
        if change.raw_start < at or change.raw_end > limit:
            continue
        out.append(html.escape(raw[at : change.raw_start]))
        out.append(
            f'<del title="{html.escape(change.rule)}" style="background:#f9d9d6">{_visible(change.before)}</del>'
            f'<ins style="background:#d9efe2;text-decoration:none">{_visible(change.after)}</ins>'
        )
        at = change.raw_end
    out.append(html.escape(raw[at:limit]))
    style = "white-space:pre-wrap;border:1px solid #e3e7eb;padding:8px;max-height:300px;overflow:auto;flex:1"
    return HTML(
        f'<div style="display:flex;gap:12px"><div style="{style}">{"".join(out)}</div>'
        f'<div style="{style}">{html.escape(cleaned.text[:limit])}</div></div>'
    )


def _visible(text: str) -> str:
    """Escaped for HTML, with what has no shape of its own (controls, zero width) as its code point."""
    shown = "".join(_SIGNS.get(c) or (c if c.isprintable() else f"⟨U+{ord(c):04X}⟩") for c in text)
    return html.escape(shown)


def coloured_tokens(pieces: list[str]) -> HTML:
    """Token boundaries on the text: each token in the next of four tints."""
    spans = [f'<span style="background:{_TINTS[i % 4]}">{html.escape(piece)}</span>' for i, piece in enumerate(pieces)]
    return HTML(f'<div style="white-space:pre-wrap;line-height:1.9">{"".join(spans)}</div>')


def windows_on_text(pieces: list[str], windows: Windows, limit: int = 400) -> HTML:
    """The tokens of one document, a line a window: context it repeats in grey, tokens it owns in colour.

    ``pieces`` are the texts of all its tokens, begin and end of text included.
    """
    lines = []
    for start, stop, loss_from in zip(windows.start.tolist(), windows.stop.tolist(), windows.loss_from.tolist()):
        spans = []
        for i in range(start, min(stop + 1, start + limit)):
            # A target is owned from loss_from on; the first input of a document is nobody's target.
            tint = _TINTS[i % 4] if i >= loss_from else "#e3e7eb"
            spans.append(f'<span style="background:{tint}">{_visible(pieces[i])}</span>')
        lines.append(f'<div style="margin:6px 0;border-left:3px solid #2f6fb3;padding-left:8px">{"".join(spans)}</div>')
    return HTML(f'<div style="white-space:pre-wrap;line-height:1.8">{"".join(lines)}</div>')
