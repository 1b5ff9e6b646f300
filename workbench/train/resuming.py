"""What a run goes on from: the newest good checkpoint, if its surroundings are those of now.

    checkpoint = checkpoint_to_resume(run, "auto")                 None: begin anew
    changes = check_surroundings(checkpoint.state, config, corpus, allow=("learning_rate",))

Data, tokenizer and settings that decide the numbers must be the same; a difference is refused, all
of them in one line, unless its name is in ``allow``. What changes the cost or at most the last bits
(where moments are kept, recompute, buckets), where checkpoints and alarms come, the number of ranks
and the versions of libraries may differ. Either way every difference goes into the ``resume`` event and into all
checkpoints from then on.
"""

import json
from pathlib import Path
from typing import Any, Mapping, Sequence

from workbench.config import RunConfig
from workbench.data.fingerprints import parts_of
from workbench.data.pipeline import Corpus
from workbench.errors import DataError, SettingError, unknown_name
from workbench.run_folder import RunFolder, environment
from workbench.train.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from workbench.train.rollback import Excluded

RESUME = ("auto", "always", "never")
# Their change leaves the numbers as they are, or changes the last bits; it is told, not refused.
FREE = (
    "train.eval_steps",
    "train.save_steps",
    "train.save_total_limit",
    "train.optimizer_offload",
    "train.optimizer_sharding",
    "train.recompute",
    "train.kernels",
    "train.bucket_by",
    "train.bucket_mb",
    "train.bucket_size_groups",
    "device",
)
_PLACES = ("data", "tasks", "tokenizer")  # settings that say where something lies; fingerprints say what it is
_PARTS = ("data", "tokenizer", "cleaning", "settings", "order")


def checkpoint_to_resume(run: RunFolder, resume: str) -> tuple[Checkpoint | None, tuple[tuple[DataError, Path], ...]]:
    """The newest usable checkpoint of ``run``, and what is wrong with those that are newer.

    ``resume``: ``auto`` goes on with a run that did not finish and begins anew after one that did;
    ``always`` goes on, or is refused where there is nothing to go on from; ``never`` begins anew.
    Reads and changes nothing. A checkpoint is usable when it is whole and no rollback went back
    from it. Raises SettingError for another word, DataError for ``always`` without
    a usable checkpoint and for ``auto`` where there are checkpoints but none is.
    """
    if resume not in RESUME:
        raise SettingError(f"resume={resume!r} is not allowed: {', '.join(RESUME)}")
    found = [] if resume == "never" or (resume == "auto" and not is_unfinished(run)) else list_checkpoints(run)
    wrong: list[tuple[DataError, Path]] = []
    for path in reversed(found):
        try:
            checkpoint = load_checkpoint(path)
            Excluded.of(run).check(checkpoint)
            return checkpoint, tuple(wrong)
        except DataError as error:
            wrong.append((error, path))
    if wrong:
        raise DataError(
            f"{wrong[0][0]}; no checkpoint in {run.checkpoints} can be used: begin anew with resume='never'"
        )
    if resume == "always":
        raise DataError(
            f"no checkpoint in {run.checkpoints} to go on from; resume='auto' begins anew where there is none"
        )
    return None, ()


def is_unfinished(run: RunFolder) -> bool:
    """Whether the last run in the folder was begun and did not come to its end."""
    log, last = run.of_rank(0).path / "events.jsonl", ""
    for line in log.read_bytes().splitlines() if log.is_file() else ():
        try:
            kind = json.loads(line)["kind"]
        except (ValueError, KeyError):  # what a crash left; it is taken out when the run goes on
            continue
        last = kind if kind in ("start", "resume", "finish") else last
    return last in ("start", "resume")


def surroundings(world: int) -> dict[str, Any]:
    """What a checkpoint keeps of the process that wrote it: versions, machine, number of ranks."""
    return {**environment(), "ranks": world}


def check_surroundings(
    saved: Mapping[str, Any], config: RunConfig, corpus: Corpus, allow: Sequence[str], here: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Every difference between a checkpoint's ``state.json`` and now: ``{"name", "then", "now", "allowed"}``.

    ``allow`` names settings (``learning_rate``) and parts of the data's fingerprint (``data``,
    ``tokenizer``, ``cleaning``, ``settings``, ``order``), also as ``train.learning_rate`` or
    ``LEARNING_RATE``; ``here`` is ``surroundings()``. Raises DataError, with all that is not allowed and the
    names to allow it by, and SettingError for a name that does not exist.
    """
    allow = [name.rpartition(".")[2].lower() for name in allow]
    then, now = _flat(saved["config"]), _flat(config.as_dict())
    known = {name.rpartition(".")[2] for name in now} | set(_PARTS)
    for name in allow:
        if name not in known:
            raise unknown_name("name to allow", name, known)
    differing = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    changes, refused = [], []

    def note(name: str, before: Any, after: Any, free: bool, allowed: bool) -> None:
        changes.append({"name": name, "then": before, "now": after, "allowed": allowed})
        if not free and not allowed:
            refused.append((name.rpartition(".")[2], f"{name}: {_short(before)} then, {_short(after)} now"))

    # Of the data's settings the fingerprints are the judge, and the settings explain what they say.
    explained = {n.partition(".")[2] for n in differing if n.startswith("data.")}
    prints, prints_now = saved["data"]["fingerprints"], corpus.fingerprints
    for part in {**prints, **prints_now}:
        if prints.get(part) != prints_now.get(part):
            why = {name for name in explained if part in parts_of(name)}
            allowed = part in allow or bool(why) and why <= set(allow)
            note(part, prints.get(part), prints_now.get(part), False, allowed)
    judged = bool(refused)
    for name in differing:
        room, _, setting = name.rpartition(".")
        free = name in FREE or room == "alarms" or (room == "data" and (setting in _PLACES or not judged))
        note(name, then.get(name), now.get(name), free, setting in allow)
    for name in ("packages", "python", "system", "processor", "git_commit", "ranks"):
        if saved["environment"].get(name) != here.get(name):
            note(name, saved["environment"].get(name), here.get(name), True, False)
    if refused:
        told, names = "; ".join(t for _, t in refused), ", ".join(dict.fromkeys(n for n, _ in refused))
        raise DataError(
            f"the checkpoint of step {saved['step']} was made in other surroundings ({told}): "
            f"put back what was changed, begin anew with resume='never', or accept it with allow_changes: {names}"
        )
    return changes


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, as JSON gives them back."""
    plain = json.loads(json.dumps(config))
    return {
        **{f"{room}.{name}": v for room, part in plain.items() if isinstance(part, dict) for name, v in part.items()},
        **{name: value for name, value in plain.items() if not isinstance(value, dict)},
    }


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
