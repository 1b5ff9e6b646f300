"""``workbench watch`` and ``workbench ask``: a run that another process trains, watched and steered from a terminal.

On a terminal a live line, with evaluations, alarms and checkpoints above it as they come; in a pipe the
same lines, and the status once a minute. Costs the reading of what is new in the run's logs twice a
second. Does not: start, resume or end a process.
"""

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

import click

from workbench.control import REQUESTS, ask
from workbench.errors import DataError
from workbench.run_folder import RunFolder

RUN = click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
EXIT_CODES = {"finished": 0, "stopped": 0, "died": 1}


@click.command("watch")
@RUN
def watch_command(folder: Path) -> int:
    """Follow the run in the folder RUN until it ends, or until Ctrl-C, which leaves the run alone.

    Exits with 1 if the process that trained has died.
    """
    try:
        return watch(RunFolder.at(folder))
    except KeyboardInterrupt:
        print("workbench: no longer watching; the run goes on", file=sys.stderr)
        return 130


@click.command("ask")
@RUN
@click.argument("what", type=click.Choice(REQUESTS))
def ask_command(folder: Path, what: str) -> None:
    """Ask the run in the folder RUN to save a checkpoint, to pause, to continue, or to stop (which saves).

    thaw lets a learning rate go on that an alarm froze.

    It does so after the step that is going on.
    """
    ask(RunFolder.at(folder), what)
    print(f"workbench: asked to {what}", file=sys.stderr)


def watch(run: RunFolder, stream: TextIO | None = None, every: float = 60.0, tick: float = 0.5) -> int:
    """Follow ``run`` on ``stream`` (standard output), looking each ``tick`` seconds, until it ends; the exit code.

    In a pipe the status is told ``every`` so many seconds. What had happened before is not told again, only
    how things stand. Waits for a run that has not begun. Raises DataError when there is no such folder.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from workbench.following import RunWatch, event_text
    from workbench.progress import step_line

    if not run.path.is_dir():
        raise DataError(f"{run.path}: no such run folder; give the RUN that a run was started with")
    console = Console(file=stream or sys.stdout)
    drawn = console.is_terminal and not console.is_dumb_terminal
    watched = RunWatch(run)
    watched.read()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    def line() -> Text:
        return Text(step_line(**watched.facts(), width=console.width), no_wrap=True, overflow="ellipsis")

    told, said_at = "", time.monotonic() - every
    with (
        Live(console=console, get_renderable=line, auto_refresh=False, transient=True)
        if drawn
        else nullcontext() as live
    ):
        while True:
            word, sentence = watched.state()
            if word in EXIT_CODES:
                if watched.row:
                    say(step_line(**watched.facts()))
                say(sentence)
                return EXIT_CODES[word]
            if word not in ("training", told):
                say(sentence)
            told = word
            if live:
                live.refresh()
            elif time.monotonic() - said_at >= every and watched.row:
                said_at = time.monotonic()
                say(step_line(**watched.facts()))
            time.sleep(tick)
            for event in watched.read():
                say(event_text(event))
