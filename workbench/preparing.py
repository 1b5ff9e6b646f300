"""``workbench prepare``: a corpus prepared once, in a folder of its own, to be opened by any notebook or job.

The folder holds the token stores with the text they were made of, the layouts, a copy of the
tokenizer, ``quarantine.jsonl``, ``prepared.json`` and ``ledger.json``, in which every document and
token is accounted for. Give it as ``-p DATA=FOLDER -p TOKENIZER=FOLDER/tokenizer``.
"""

from pathlib import Path
from typing import Mapping, Sequence

from workbench.config import DataConfig
from workbench.data.pipeline import Corpus, cut_corpus
from workbench.data.prepare import prepare
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import unknown_name
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
    for name in settings:
        if name not in _SETTINGS:
            raise unknown_name("setting", name, list(_SETTINGS))
    values = {name: Parameter(name, _SETTINGS[name]).value(text, Path.cwd()) for name, text in settings.items()}
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
