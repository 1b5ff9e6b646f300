"""``workbench prepare`` and ``workbench tokenizer``: made once, in a folder of their own, for any notebook or job.

A prepared folder holds the token stores with the text they were made of, the layouts, a copy of the
tokenizer, ``quarantine.jsonl``, ``prepared.json`` and ``ledger.json``, in which every document and
token is accounted for. Give it as ``-p DATA=FOLDER -p TOKENIZER=FOLDER/tokenizer``.
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from transformers import PreTrainedTokenizerFast

from workbench.config import DataConfig
from workbench.data.cleaning import clean
from workbench.data.documents import Rejected, read_documents
from workbench.data.pipeline import Corpus, cut_corpus
from workbench.data.prepare import how_to_read, prepare
from workbench.data.stages import policy_of
from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError, UserError, unknown_name
from workbench.parameters import Parameter
from workbench.progress import preparing
from workbench.run_folder import write_json

_OWN = ("data", "tokenizer", "tasks")  # these have options of their own
_SETTINGS = {f: v for f, v in vars(DataConfig()).items() if f not in _OWN}


def prepare_corpus(
    data: Sequence[str],
    out: Path,
    tokenizer: str,
    tasks: str = "",
    settings: Mapping[str, str] = {},
    workers: int | None = None,
) -> Corpus:
    """Prepare ``data`` into ``out`` (or go on, or find it done) and write ``ledger.json``.

    ``settings`` are settings of DataConfig as text. Raises UserError for what the person has to change.
    """
    values = _values(settings)
    if not tasks and not {"task_share", "base_share"} & values.keys():
        # No tasks: their share goes to the base.
        perturbed = values.get("perturbed_share", _SETTINGS["perturbed_share"])
        values |= {"task_share": 0.0, "base_share": 1.0 - perturbed}
    config = DataConfig(data=tuple(data), tokenizer=tokenizer, tasks=tasks, **values)
    loaded = load_tokenizer(tokenizer)
    with preparing() as watch:
        stores, preparation = prepare(config, loaded, out, workers=workers, watch=watch)
    corpus = cut_corpus(config, loaded, out, stores, preparation)
    if not (out / "tokenizer").is_dir():
        loaded.save_pretrained(out / "tokenizer")
    write_json(out / "ledger.json", corpus.ledger())
    return corpus


def tokenizer_of(
    data: Sequence[str], out: Path, vocab_size: int, han_run: int, settings: Mapping[str, str] = {}
) -> tuple[PreTrainedTokenizerFast, int, Counter]:
    """Train a tokenizer on ``data`` and save it in ``out``; returns it, the documents read and what was rejected."""
    if out.exists():
        raise UserError(f"--out {out}: it is there already; name a new folder")
    config = DataConfig(data=tuple(data), tasks="", **_values(settings))
    policy, rejected, read = policy_of(config), Counter(), 0

    def texts() -> Iterator[str]:
        nonlocal read

        def on_reject(thing: Rejected) -> None:
            rejected.update([thing.kind])

        for document in read_documents(config.data, **how_to_read(config), on_reject=on_reject):
            read += 1
            yield clean(document.text, policy).text

    try:
        trained = train_tokenizer(texts(), vocab_size, han_run=han_run)
    except DataError as error:
        if read:
            raise
        raise DataError(f"no usable text in {', '.join(data)} ({dict(rejected) or 'no documents'})") from error
    trained.init_kwargs["cleaning"] = asdict(policy)
    trained.save_pretrained(out)
    return trained, read, rejected


def _values(settings: Mapping[str, str]) -> dict[str, Any]:
    for name in settings:
        if name not in _SETTINGS:
            raise unknown_name("setting", name, list(_SETTINGS))
    return {name: Parameter(name, _SETTINGS[name]).value(text, Path.cwd()) for name, text in settings.items()}
