"""``workbench run``: notebooks as a job, in one kernel or on several ranks; and what it shares with other commands.

Costs nothing until it runs: what runs notebooks is imported then.
"""

import sys
from pathlib import Path
from typing import Sequence

import click

from workbench.parameters import parse_assignments

NOTEBOOKS = click.argument("notebooks", nargs=-1, type=click.Path(path_type=Path))
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds a cell may take; no limit if not given.",
)


def tell(message: str, code: int) -> int:
    """Print ``message`` as one line on standard error; the exit code ``code``."""
    print("workbench: " + " ".join(message.split("\n")), file=sys.stderr, flush=True)
    return code


@click.command("run", no_args_is_help=False)
@NOTEBOOKS
@click.option("-p", "given", multiple=True, metavar="NAME=VALUE", help="Set a notebook parameter; may be repeated.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="The run folder.")
@TIMEOUT
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run each notebook on N ranks, under msrun. The first one's is the result; the others' lie in RUN/ranks/.",
)
@click.option("--local-workers", type=click.IntRange(min=1), metavar="N", help="How many of them on each machine.")
@click.option("--node-rank", type=click.IntRange(min=0), metavar="K", help="Which of several machines this one is.")
@click.option("--master-addr", metavar="IP", help="The address of machine 0, where the scheduler is.")
@click.option(
    "--master-port",
    type=click.IntRange(1024, 65000),
    metavar="PORT",
    help="Of the scheduler; each further notebook takes the next. A free one, on several machines 8118.",
)
@click.option(
    "--msrun",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of msrun: bind_core, bind_numa, cluster_time_out or rank_table_file; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, print the commands for each machine, start nothing.")
def run_command(
    notebooks: Sequence[Path],
    given: Sequence[str],
    out: Path,
    timeout: float | None,
    workers: int | None,
    local_workers: int | None,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    options: Sequence[str],
    dry_run: bool,
) -> int:
    """Run NOTEBOOKS in order into the run folder RUN and write its report.

    Every name and value is checked against the notebooks' parameters before anything starts.
    Relative paths are relative to where you are.

    On several machines run the same command on each, with its --node-rank, when notebooks and data
    have the same paths there. A machine whose ranks fail ends at once, the others when the
    scheduler misses them, after 30 s.
    """
    if not notebooks:
        raise click.UsageError("no notebook given; for example: workbench run notebooks/01_*.ipynb --out runs/demo")
    placed = {
        "local_workers": local_workers,
        "node_rank": node_rank,
        "master_addr": master_addr,
        "master_port": master_port,
        "options": tuple(options) or None,
    }
    placed = {name: value for name, value in placed.items() if value is not None}
    if placed and not workers:
        name = {"options": "msrun"}.get(first := next(iter(placed)), first).replace("_", "-")
        raise click.UsageError(f"--{name} needs --workers N, the number of ranks on all machines")
    values = parse_assignments(given)
    from workbench import jobs, rank_jobs
    from workbench.launching import Ranks
    from workbench.progress import Progress
    from workbench.run_folder import RunFolder

    root = RunFolder.at(out)
    ranks = Ranks(workers, **placed) if workers else None
    if ranks and ranks.nodes > 1 and node_rank is None and not dry_run:
        raise click.UsageError(f"--node-rank K needed: which of the {ranks.nodes} machines is this one")
    planned = jobs.plan(notebooks, values, root.path, Path.cwd())
    if dry_run:
        text = rank_jobs.in_shells(planned, ranks, root, timeout) if ranks else None
        click.echo(text or rank_jobs.in_shell_alone(planned, root, timeout))
        return 0
    folder, how = root, None
    if ranks:
        # What this machine shows is what its first rank left.
        folder = root.of_rank(ranks.here[0])
        how = rank_jobs.OnRanks(planned, ranks, root)
    try:
        jobs.run(planned, folder, Progress(folder.path / "metrics.jsonl"), timeout, how)
    except KeyboardInterrupt:
        from workbench.following import RunWatch

        watched = RunWatch(folder)
        watched.read()
        word, said = watched.state()
        if word == "stopped":
            print(f"workbench: {said} and saved; the same command goes on from there", file=sys.stderr)
        raise
    except jobs.JobFailed as failure:
        stopped = isinstance(failure, jobs.JobStopped)
        return tell(f"{failure}; report: {folder.report}", 130 if stopped else 1)
    click.echo(folder.report)
    return 0
