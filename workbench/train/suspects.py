"""The samples behind an alarm, and their text: what was in the batches that are suspected.

    found = suspects(alarm, corpus, positions, losses)
    print(describe(alarm, found))

``positions`` are those of the suspected steps. With ``losses``, a function from a batch to the mean
loss of each of its rows, the worst rows are told, by the weights as they are now: one forward pass over
at most ``look_at`` of them, evenly spread. Without it nobody knows which is the worst, and as
many evenly spread ones are told. A sample with a high loss is a suspect and no more.
"""

from typing import Any, Callable, Mapping, Sequence

import numpy as np

from workbench.data.boundaries import is_boundary
from workbench.data.pipeline import Corpus
from workbench.errors import DataError
from workbench.train.alarms import Alarm

_TORN = "\ufffd"  # a window may begin and end inside a character


def suspects(
    alarm: Alarm,
    corpus: Corpus,
    positions: Sequence[int] | np.ndarray,
    losses: Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = None,
    *,
    most: int = 3,
    characters: int = 200,
    batch_size: int = 16,
    look_at: int = 256,
) -> list[dict[str, Any]]:
    """The ``most`` worst samples at ``positions`` (N,), JSON-ready: sample, position, loss, source, document, text.

    ``loss`` is None without ``losses``; ``source`` is where the mixture drew it from, ``document`` the
    file and line of each document in it. ``losses`` gets batches of exactly ``batch_size`` rows, the last
    filled up with its own, and gives (batch_size,) nats. Nothing is found for an alarm of the
    machine. Raises DataError where there is no position, or ``losses`` gives another shape.
    """
    if not alarm.about_data:
        return []
    positions = np.unique(np.asarray(positions, np.int64))
    if not positions.size:
        raise DataError(f"no position is given for steps {alarm.first_step} to {alarm.last_step} of {alarm.kind}")
    kept = positions[_spread(len(positions), look_at if losses else most)]
    measured = _measure(corpus, kept, losses, batch_size) if losses else None
    order = np.arange(len(kept)) if measured is None else np.argsort(-_worst_first(measured), kind="stable")
    return [
        _told(corpus, int(kept[i]), None if measured is None else float(measured[i]), characters) for i in order[:most]
    ]


def describe(alarm: Alarm, found: Sequence[Mapping[str, Any]]) -> str:
    """The alarm and its samples as lines of text, for a terminal or a notebook."""
    steps = (
        f"step {alarm.step}" if alarm.first_step == alarm.last_step else f"steps {alarm.first_step}-{alarm.last_step}"
    )
    lines = [f"{alarm.kind} at step {alarm.step} ({alarm.policy}): {alarm.message}"]
    if found:
        lines.append(f"samples of {steps}:" if found[0]["loss"] is None else f"worst samples of {steps}:")
    for one in found:
        loss = "" if one["loss"] is None else f"loss {one['loss']:.2f}, "
        lines.append(
            f"  sample {one['sample']} at position {one['position']}: {loss}{one['source']}, {one['document']}"
        )
        lines.append(f"    {one['text']}")
    return "\n".join(lines)


def cut(text: str, characters: int) -> str:
    """``text`` on one line, at most ``characters`` long, never cut inside what a reader takes for one character."""
    text = " ".join(text.strip(_TORN).split())
    if len(text) <= characters:
        return text
    at = max(characters - 1, 0)
    while not is_boundary(text, at):
        at -= 1
    return text[:at].rstrip() + "…"


def _spread(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _worst_first(measured: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(measured), np.inf, measured)


def _measure(corpus: Corpus, positions: np.ndarray, losses, batch_size: int) -> np.ndarray:
    found = []
    for start in range(0, len(positions), batch_size):
        part = positions[start : start + batch_size]
        values = np.asarray(losses(corpus.samples(np.resize(part, batch_size))), np.float64)
        if values.shape != (batch_size,):
            raise DataError(f"losses gives shape {values.shape}, expected ({batch_size},): one loss a row")
        found.append(values[: len(part)])
    return np.concatenate(found)


def _told(corpus: Corpus, position: int, loss: float | None, characters: int) -> dict[str, Any]:
    row, origin = corpus.samples(np.asarray([position])), corpus.origin(position)
    ids = row["input_ids"][0][row["segment_ids"][0] > 0]
    places = dict.fromkeys(f"{o['source']}, line {o['line']}" if o.get("line") else str(o["source"]) for o in origin)
    return {
        "sample": int(row["sample_ids"][0]),
        "position": position,
        "loss": None if loss is None else round(loss, 4),
        "source": origin[0]["store"],
        "document": "; ".join(places),
        "text": cut(corpus.tokenizer.decode(ids.tolist(), skip_special_tokens=True), characters),
    }
