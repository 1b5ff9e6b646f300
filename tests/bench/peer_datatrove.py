"""Text to a tokenised file with ``datatrove``, in an environment of its own because it needs numpy 2.

``JsonlReader`` → ``DocumentTokenizer`` with end-of-text, written to local files, run by
``LocalPipelineExecutor``. Its work ends there: it cuts no rows and makes no batches, so it has less to
do than the others. Documents are shuffled as is its default, and not, in ``SETTINGS``.

    environment(FOLDER)     makes FOLDER/datatrove-env once (150 MB to fetch), gives its interpreter
    ENV/bin/python tests/bench/peer_datatrove.py --job JOB.json --folder EMPTY_FOLDER --tasks 2

Imports only the standard library and ``job``: the same file runs here and over there, as a script.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __package__:
    from .job import Job
else:
    from job import Job

# "processing" is left out but for the two packages that the tokenise pipeline itself imports.
REQUIREMENTS = ("datatrove[io]>=0.10,<0.11", "tokenizers>=0.22", "regex")
# name -> (words for the command line, environment). Its workers do not share the tokenizer's threads.
SETTINGS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "1 task, threads": (("--tasks", "1"), {"TOKENIZERS_PARALLELISM": "true"}),
    "1 task, threads, unshuffled": (("--tasks", "1", "--unshuffled"), {"TOKENIZERS_PARALLELISM": "true"}),
    "1 task, threads, unshuffled, batches of 1000": (
        ("--tasks", "1", "--unshuffled", "--batch", "1000"),
        {"TOKENIZERS_PARALLELISM": "true"},
    ),
    "2 tasks": (("--tasks", "2"), {"TOKENIZERS_PARALLELISM": "false"}),
    "2 tasks, unshuffled": (("--tasks", "2", "--unshuffled"), {"TOKENIZERS_PARALLELISM": "false"}),
    "2 tasks, unshuffled, batches of 1000": (
        ("--tasks", "2", "--unshuffled", "--batch", "1000"),
        {"TOKENIZERS_PARALLELISM": "false"},
    ),
    "2 tasks, threads in each": (("--tasks", "2"), {"TOKENIZERS_PARALLELISM": "true"}),
}


def entries(job_file: Path, python: str, names: Sequence[str] = tuple(SETTINGS)) -> list:
    """An Entry a setting; ``python`` is the interpreter that ``environment`` gave."""
    from .measure import Entry

    def entry(name: str) -> Entry:
        words, environment = SETTINGS[name]
        start = [python, str(Path(__file__).resolve()), "--job", str(job_file), "--folder"]
        return Entry(f"datatrove: {name}", "datatrove", lambda folder: [*start, str(folder), *words], environment)

    return [entry(name) for name in names]


def environment(folder: Path) -> str:
    """The interpreter of ``folder``/datatrove-env, which is made with pip if it is missing.

    Raises subprocess.CalledProcessError where pip fails; a half-made one is made again.
    """
    home = folder / "datatrove-env"
    python, done = home / "bin" / "python", home / "requirements.txt"
    if not done.exists() or done.read_text() != "\n".join(REQUIREMENTS):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        done.write_text("\n".join(REQUIREMENTS))
    return str(python)


def versions(python: str) -> dict[str, str]:
    """The versions of datatrove, numpy and tokenizers in that environment."""
    ask = "import json; from importlib.metadata import version as v; "
    ask += "print(json.dumps({n: v(n) for n in ('datatrove', 'numpy', 'tokenizers')}))"
    return json.loads(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout)


def run(job: Job, folder: Path, *, tasks: int, unshuffled: bool, batch: int) -> dict:
    """Do the job into ``folder``: seconds, tokens, and the seconds of each step summed over the tasks."""
    import numpy as np
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    source = Path(job.files[0]).parent
    start = time.perf_counter()
    pipeline = [
        JsonlReader(str(source), glob_pattern="*.jsonl"),
        DocumentTokenizer(
            output_folder=str(folder / "out"),
            tokenizer_name_or_path=str(Path(job.tokenizer) / "tokenizer.json"),
            eos_token=job.end_token,
            batch_size=batch,
            shuffle_documents=not unshuffled,
            seed=1,
        ),
    ]
    stats = LocalPipelineExecutor(pipeline, tasks=tasks, workers=tasks, logging_dir=str(folder / "logs")).run()
    seconds = time.perf_counter() - start

    written = sorted((folder / "out").glob("*.ds"))
    metadata = [path.with_name(f"{path.name}.metadata").read_text().splitlines() for path in written]
    (width,) = {int(lines[0].rpartition("|")[2]) for lines in metadata}
    ids = [np.fromfile(path, dtype=f"<u{width}") for path in written]
    steps = {step.name: round(step.time_stats.total, 3) for step in stats.stats}
    return {
        "seconds": seconds,
        "stages": {name.split()[-1].lower(): value for name, value in steps.items()},
        "tokens": sum(map(len, ids)),
        "sum_of_ids": int(sum(int(part.sum(dtype=np.int64)) for part in ids)),
        "documents": sum(int((part == job.end_id).sum()) for part in ids),
        "written_mb": round(sum(path.stat().st_size for path in written) / 1e6, 1),
    }


def main() -> None:
    """Read the command line, run, and print the result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--unshuffled", action="store_true")
    given = vars(parser.parse_args())
    result = run(Job.load(given.pop("job")), given.pop("folder"), **given)
    print(json.dumps(result))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
