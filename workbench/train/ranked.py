"""A whole run on several ranks of this machine.

    told = pretrain_on_ranks(config, RunFolder.at("runs/two"), workers=2)
    python -m workbench.train.ranked CONFIG.json FOLDER        what each rank executes

Costs the start of MindSpore in every rank and its scheduler, 10 to 20 s on two cores, and the
compilation of the step in each. The first rank's logs and checkpoints are the run folder's, the
others' logs lie in ``ranks/RANK/`` in it. Not here: several machines, notebooks on several ranks.
"""

import argparse
import json
import tempfile
from pathlib import Path

from workbench.config import RunConfig
from workbench.launching import launch
from workbench.run_folder import RunFolder
from workbench.train.loop import check_ranks, pretrain


def pretrain_on_ranks(config: RunConfig, run: RunFolder, workers: int = 2, timeout: float = 600) -> tuple[str, ...]:
    """``pretrain`` on ``workers`` ranks; what each printed, by rank.

    Raises SettingError for settings that ranks cannot run, LaunchFailed, with the failing rank's last words, when one fails or after ``timeout`` seconds.
    """
    check_ranks(config.train, workers)
    with tempfile.TemporaryDirectory(prefix="ranked-") as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config.as_dict(), ensure_ascii=False), encoding="utf-8")
        return launch("-m", ["workbench.train.ranked", str(path), str(run.path)], workers, timeout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="a run's config.json")
    parser.add_argument("folder", type=Path, help="the run folder")
    given = parser.parse_args()
    pretrain(RunConfig.from_dict(json.loads(given.config.read_text(encoding="utf-8"))), RunFolder.at(given.folder))
