"""The command line: ``workbench run``, ``report``, ``export``, ``prepare``, ``tokenizer``, ``budget``, and others.

Exit codes: 0 it went well; 1 a notebook failed, or the lint found an error; 2 something the person
gave is wrong, and nothing was started; 130 stopped by SIGINT or by ``workbench ask``, 143 by SIGTERM. A mistake is told
in one line on standard error, without a traceback; so is progress. Standard output holds only the
result: its path, the findings, or the run that is watched. Costs nothing for ``--help``: what runs
notebooks is imported when a command needs it.
"""

import signal
import sys
from pathlib import Path
from typing import Any, Sequence

import click

from workbench import __version__
from workbench.errors import DataError, UserError
from workbench.parameters import parse_assignments
from workbench.run_command import NOTEBOOKS, TIMEOUT, run_command, tell
from workbench.watching import ask_command, watch_command


@click.group(invoke_without_command=True)
@click.version_option(__version__, message="workbench %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Pretraining language models with MindSpore: notebooks to look with, the same notebooks as jobs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


commands.add_command(run_command)


@commands.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
def report_command(folder: Path) -> None:
    """Write the pages and the report of the run folder RUN again, from what is in it."""
    from workbench.pages import write_pages
    from workbench.report import write_report
    from workbench.run_folder import RunFolder

    run = RunFolder.at(folder)
    write_pages(run.notebooks)
    click.echo(write_report(run))


@commands.command("export")
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="A new or empty folder.")
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Of the weights on disk.",
)
def export_command(folder: Path, out: Path, dtype: str) -> None:
    """Write the newest checkpoint of the run folder RUN as a Hugging Face model: weights, settings, tokenizer."""
    from workbench.config import RunConfig
    from workbench.data.tokenizing import load_tokenizer
    from workbench.model.exchange import export_hf
    from workbench.run_folder import RunFolder
    from workbench.train.checkpoint import latest_checkpoint

    run = RunFolder.at(folder)
    checkpoint = latest_checkpoint(run)
    model = RunConfig.from_dict(checkpoint.state["config"]).model
    tokenizer = load_tokenizer(run.path / "tokenizer")
    exported = export_hf(out, model, checkpoint.weights, tokenizer, dtype=dtype)
    print(f"step {checkpoint.state['step']:,} of {run.path}, {dtype}", file=sys.stderr)
    click.echo(exported)


@commands.command("prepare")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The prepared corpus.")
@click.option("--tokenizer", required=True, metavar="FOLDER", help="A Hugging Face tokenizer folder.")
@click.option("--tasks", default="", metavar="FILES", help="Task samples with metadata, mixed in at task_share.")
@click.option("-p", "given", multiple=True, metavar="NAME=VALUE", help="A setting of the data; may be repeated.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes; as many as cores if not given.")
def prepare_command(
    data: Sequence[str], out: Path, tokenizer: str, tasks: str, given: Sequence[str], workers: int | None
) -> int:
    """Prepare DATA (files, folders or globs) into DIR: read, clean, tokenise, cut; with a ledger of every token.

    Interrupted, the same command continues; run again, it does nothing.
    """
    settings = parse_assignments(given)
    from workbench.preparing import prepare_corpus

    try:
        corpus = prepare_corpus(data, out, tokenizer, tasks, settings, workers)
    except KeyboardInterrupt:
        print("workbench: what is done is kept; the same command continues from there", file=sys.stderr)
        raise
    facts = corpus.preparation
    left_out = {**facts.rejected, **facts.dropped}
    print(
        f"{facts.documents_read:,} documents, {sum(facts.tokens.values()):,} tokens, "
        f"fingerprint {corpus.fingerprint}" + (f"; left out: {left_out}" if left_out else ""),
        file=sys.stderr,
    )
    print(corpus.mixture.tree(), file=sys.stderr)
    click.echo(out / "ledger.json")
    return 0


@commands.command("tokenizer")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Where to store it.")
@click.option(
    "--vocab-size",
    default=8192,
    show_default=True,
    type=click.IntRange(min=300),
    help="Entries, special ones included.",
)
@click.option(
    "--han-run", default=4, show_default=True, type=click.IntRange(min=1), help="Most Chinese characters in a token."
)
@click.option("-p", "given", multiple=True, metavar="NAME=VALUE", help="A setting of the data; may be repeated.")
def tokenizer_command(data: Sequence[str], out: Path, vocab_size: int, han_run: int, given: Sequence[str]) -> int:
    """Train a byte-level BPE tokenizer on DATA (files, folders or globs) for -p TOKENIZER=FOLDER.

    Texts are read and cleaned as the data pipeline does with the same settings, and the folder
    remembers how. What cannot be read is counted and left out.
    """
    settings = parse_assignments(given)
    from workbench.preparing import tokenizer_of

    trained, documents, rejected = tokenizer_of(data, out, vocab_size, han_run, settings)
    left_out = f"; left out: {dict(rejected)}" if rejected else ""
    print(f"{documents:,} documents, {len(trained):,} entries{left_out}", file=sys.stderr)
    click.echo(out)
    return 0


@commands.command("budget")
@click.option("-p", "given", multiple=True, metavar="NAME=VALUE", help="A setting, or sequence_length; repeatable.")
@click.option("--ranks", default=1, show_default=True, type=click.IntRange(min=1), help="That share the batch.")
@click.option("--device", default="CPU", show_default=True, type=click.Choice(["CPU", "Ascend"]))
@click.option("--from", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="A run's, or Hugging Face's.")
def budget_command(given: Sequence[str], ranks: int, device: str, folder: Path | None) -> None:
    """Tell the memory of a training step before it is started: by part, at its peak, on one rank.

    Settings are those of the model and of training; they change what FOLDER's config.json says.
    """
    settings = parse_assignments(given)
    from workbench.budgeting import budget_of

    click.echo(budget_of(settings, ranks, device, folder))


@commands.command("refresh")
@NOTEBOOKS
@TIMEOUT
def refresh_command(notebooks: Sequence[Path], timeout: float | None) -> int:
    """Run NOTEBOOKS (all of notebooks/ if none is given) as they are and store their outputs in place."""
    found = list(notebooks) or sorted(Path("notebooks").glob("*.ipynb"))
    if not found:
        raise click.UsageError("no notebook in ./notebooks; run this in the repository or name the notebooks")
    from workbench.jobs import JobFailed
    from workbench.notebook_store import refresh

    try:
        changed = refresh(found, timeout)
    except JobFailed as failure:
        return tell(f"{failure}; no notebook was changed", 1)
    for path in changed:
        click.echo(path)
    return 0


@commands.command("lint")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES...")
def lint_command(files: Sequence[Path]) -> int:
    """Check Python FILES for what MindSpore 2.10 does not compile, does not have or does wrongly.

    One line a finding; nothing is executed. Exits with 1 if a finding is an error.
    """
    from workbench.diagnose.graphlint import lint

    sources = {}
    for file in files:
        try:
            sources[str(file)] = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{file}: cannot be read ({error}); give Python files in UTF-8") from error
    found = [finding for file, source in sources.items() for finding in lint(source, file)]
    for finding in found:
        click.echo(finding)
    return int(any(finding.severity == "error" for finding in found))


commands.add_command(watch_command)
commands.add_command(ask_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    stopped_by: list[int] = []

    def stop(number: int, frame: Any) -> None:
        stopped_by.append(number)
        raise KeyboardInterrupt

    # A scheduler that takes the machine back sends SIGTERM: stop as for Ctrl-C, the kernel is
    # interrupted and may save, and pages and report are written.
    before = signal.signal(signal.SIGTERM, stop)
    try:
        return commands.main(args=arguments, prog_name="workbench", standalone_mode=False) or 0
    except UserError as error:
        return tell(str(error), 2)
    except click.ClickException as error:
        return tell(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return tell("stopped", 143 if stopped_by else 130)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
