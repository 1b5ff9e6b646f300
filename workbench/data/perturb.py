"""Copies of a text with a small change, so that a model does not depend on spotless input.

    character noise      letters swapped, dropped or doubled, 2 % of them
    homophones           words written as others that sound the same (see ``homophones``)
    width change         a tenth of the runs of ASCII to full width, or of full width to ASCII
    shuffled sentences   the same sentences in another order; white space and line ends stay in place
    swapped facts        two facts exchanged: ``truth`` 0.0, the text says something false (see ``swapped_facts``,
                         also for how sure that is); the other kinds have ``truth`` None

A copy depends on its text and the seed alone. Every copy says what was done in ``changes``, from which
``replay`` makes it again: (start, end, replacement) in the given text, or for shuffled sentences
their order. Of the kinds asked for one is chosen that can change the text; if none can, the kind is
``unchanged``. Noise never cuts a grapheme cluster.

Costs about a second for a million characters; homophones more. Does not do: meaning. A copy by noise
or by homophones may by chance be a text that says something else.
"""

import random
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import regex

from workbench.data.boundaries import ORDINARY, sentences
from workbench.data.edits import Edit, apply
from workbench.data.homophones import Change, homophone_changes
from workbench.data.selection import content_hash
from workbench.data.swapped_facts import swap_changes
from workbench.errors import SettingError, unknown_name

UNCHANGED = "unchanged"
_NOISE, _WIDTH = 0.02, 0.1
# A letter between ordinary characters or at an edge is a grapheme cluster of its own, and stays one when doubled.
_LETTER = regex.compile(rf"(?<![^{ORDINARY[1:-1]}])[\p{{L}}&&{ORDINARY}](?![^{ORDINARY[1:-1]}])", regex.V1)
_RUN = regex.compile(r"[!-~]+|[！-～]+")
_WIDER = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_NARROWER = {wide: code for code, wide in _WIDER.items()}


@dataclass(frozen=True)
class Perturbed:
    """A copy: its ``text``, the ``kind`` of change, the ``changes`` (JSON-able), and whether it is true."""

    text: str
    kind: str
    changes: tuple
    truth: float | None


def _noise(text: str, rng: random.Random) -> list[Change]:
    places = [m.start() for m in _LETTER.finditer(text)]
    if not places:
        return []
    letters, changes, done = set(places), [], 0
    for at in sorted(rng.sample(places, max(1, round(_NOISE * len(places))))):
        if at < done:
            continue
        way = rng.choice(("swap", "drop", "double"))
        if way == "swap" and at + 1 in letters and text[at] != text[at + 1]:
            changes.append((at, at + 2, text[at + 1] + text[at]))
        elif way == "drop" and len(text) > 1:
            changes.append((at, at + 1, ""))
        else:
            changes.append((at, at + 1, text[at] * 2))
        done = changes[-1][1]
    # Several together may undo each other, a single one never.
    return changes if apply(text, _edits(changes)) != text else changes[:1]


def _width(text: str, rng: random.Random) -> list[Change]:
    runs = list(_RUN.finditer(text))
    chosen = rng.sample(runs, max(1, round(_WIDTH * len(runs)))) if runs else []
    table = {**_WIDER, **_NARROWER}
    return sorted((m.start(), m.end(), m.group().translate(table)) for m in chosen)


def _shuffle(text: str, rng: random.Random) -> list[int]:
    spoken = [sentence for sentence, _ in sentences(text)]
    if len(set(spoken)) < 2:
        return []
    order = rng.sample(range(len(spoken)), len(spoken))
    if all(spoken[i] == s for i, s in zip(order, spoken)):
        at = next(i for i in range(1, len(spoken)) if spoken[i] != spoken[i - 1])
        order = [*range(at - 1), at, at - 1, *range(at + 1, len(spoken))]
    return order


_KINDS: dict[str, Callable[[str, random.Random], list]] = {
    "character noise": _noise,
    "homophones": homophone_changes,
    "width change": _width,
    "shuffled sentences": _shuffle,
    "swapped facts": swap_changes,
}
KINDS = tuple(_KINDS)


def perturb(text: str, seed: int, kinds: Sequence[str] | None = None) -> Perturbed:
    """A changed copy of ``text`` by one of ``kinds`` (default: all of ``KINDS``) that can change it.

    Among these each is as likely. Raises SettingError for a kind that does not exist, and for none.
    """
    asked = list(KINDS if kinds is None else dict.fromkeys(kinds))
    for kind in asked:
        if kind not in _KINDS:
            raise unknown_name("kind of perturbation", kind, KINDS)
    if not asked:
        raise SettingError(f"kinds=() is not allowed: one or more of {', '.join(KINDS)}")
    # A random order, of which the first that can is taken, is a fair draw among those that can.
    random.Random(content_hash(f"kind\0{text}", seed)).shuffle(asked)
    for kind in asked:
        changes = tuple(_KINDS[kind](text, random.Random(content_hash(f"{kind}\0{text}", seed))))
        changed = replay(text, kind, changes)
        if changed != text:
            return Perturbed(changed, kind, changes, 0.0 if kind == "swapped facts" else None)
    return Perturbed(text, UNCHANGED, (), None)


def replay(text: str, kind: str, changes: Sequence[Any]) -> str:
    """The copy that ``changes`` of ``kind`` make of ``text``, also after they went through JSON."""
    if kind == "shuffled sentences" and changes:
        spoken = sentences(text)
        return "".join(spoken[i][0] + space for i, (_, space) in zip(changes, spoken, strict=True))
    return apply(text, _edits(changes))


def _edits(changes: Sequence[Sequence]) -> list[Edit]:
    return [Edit(*change) for change in changes]
