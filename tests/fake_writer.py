"""A run without MindSpore: it writes the logs that a training loop writes and obeys its ``Control``.

python fake_writer.py RUN STEPS SECONDS_A_STEP
"""

import math
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from workbench.control import Control  # noqa: E402
from workbench.run_folder import RunFolder  # noqa: E402


def train(run, steps, seconds):
    with Control(run) as control:
        run.start_logs()
        run.log_event("start", steps=steps, pid=os.getpid(), host=socket.gethostname())
        for step in range(1, steps + 1):
            time.sleep(seconds)
            run.log_metrics(
                {
                    **{"step": step, "steps": steps, "loss": 2 + 6 * math.exp(-step / 40) + 0.1 * math.sin(step)},
                    **{"grad_norm": 1 + math.cos(step) / 2, "loss_scale": 65536.0 * 2 ** (step // 50)},
                    **{"tokens_per_second": 5000.0 + 300 * math.sin(step / 7), "rss_mb": 1000.0 + step / 10},
                    **{"learning_rate": 3e-3, "seconds_left": seconds * (steps - step)},
                }
            )
            if step % 20 == 0:
                run.log_event("evaluation", step=step, perplexity=30 * math.exp(-step / 80) + 3)
            asked = control.poll()
            if asked.save or asked.stop:
                run.log_event("checkpoint", step=step, path=f"step_{step:06d}")
                control.done("save")
            if asked.stop:
                run.log_event("stop", step=step, by=asked.stop)
                return
            if asked.paused:
                run.log_event("pause", step=step)
                control.wait_while_paused()
                run.log_event("continue", step=step)
        run.log_event("finish", step=steps)


if __name__ == "__main__":
    train(RunFolder.at(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
