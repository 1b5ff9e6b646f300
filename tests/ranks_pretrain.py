"""A small run on the ranks of msrun: CONFIG.json FOLDER, as ``test_ranks_pretrain`` starts it."""

import json
import sys
from pathlib import Path

from workbench.config import RunConfig
from workbench.run_folder import RunFolder
from workbench.train.loop import pretrain

if __name__ == "__main__":
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    pretrain(RunConfig.from_dict(values), RunFolder.at(Path(sys.argv[2])))
