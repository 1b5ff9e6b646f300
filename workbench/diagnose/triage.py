"""Four layers in order, from the cheapest evidence to the dearest: what ended or ails this run.

    1 exit            exit code, kernel log, cgroup counters, end of the output
    2 memory          does host memory keep growing
    3 data pipeline   steps lost or repeated, short batches, waiting
    4 numerics        loss, perplexity, loss scale, gradient norm, load of the experts

Reads a run folder (which may still be written) and the texts it is given, and nothing else: no
command is run, MindSpore is not imported. All four layers are always examined, because the first
cause found often has a cause of its own: a run killed for memory leaked first. Costs a few passes
over the metrics.

    print(describe(triage(RunFolder.at("runs/demo"), exit_code=137, kernel_log=dmesg)))
"""

from typing import Any, Mapping, Sequence

import numpy as np

from workbench.config import ModelConfig
from workbench.diagnose import pipeline, spikes
from workbench.diagnose.columns import column, last_of_each_step
from workbench.diagnose.exits import classify_exit
from workbench.diagnose.experts import collapsed
from workbench.diagnose.findings import Finding, describe, ranked
from workbench.diagnose.leaks import leak_finding, longest_process
from workbench.run_folder import RunFolder

__all__ = ["describe", "triage"]

_FEWEST_MEMORY_ROWS = 25  # below this leak_finding cannot compare two halves


def triage(
    run: RunFolder,
    exit_code: int | None = None,
    kernel_log: str = "",
    cgroup_events: str = "",
    output_tail: str = "",
    pid: int | None = None,
    more: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Every cause found, the most severe first, among equals by layer and step; never empty.

    Texts and ``pid`` as in classify_exit. ``more`` takes findings made elsewhere (gradients, a
    watched dataset, the health report). Raises DataError if ``run`` is no run folder or holds
    rows that are not metrics.
    """
    config, rows, events = run.config(), run.metrics(), run.events()
    found = list(more)
    if exit_code is None:
        found.append(_state(rows, events))
    else:
        found.append(classify_exit(exit_code, kernel_log, cgroup_events, output_tail, pid))
    if not rows:
        found.append(
            Finding(
                "no metrics",
                "exit",
                "warning",
                ("metrics.jsonl holds no finished line",),
                "the run ended before its first step: read the output of the process, the cause is there",
            )
        )
        return ranked(found)
    found += _memory(rows)
    found += pipeline.step_order(rows) + pipeline.short_batches(rows) + pipeline.waiting(rows)
    floor = float(config.get("train", {}).get("min_loss_scale", 1.0))
    found += spikes.non_finite(rows)
    found += spikes.loss_spikes(rows)
    found += spikes.loss_divergence(rows)
    found += spikes.perplexity_jumps(events)
    found += spikes.overflow_storm(rows, min_loss_scale=floor)
    found += spikes.gradient_norms(rows)
    found += idle_experts(config, rows)
    if all(f.severity == "note" for f in found):
        found.append(
            Finding(
                "no fault found",
                "numerics",
                "note",
                (f"{len(rows)} rows examined in all four layers, within limits",),
                "if it still looks wrong: inspect_gradients on three batches, watch_dataset on the pipeline",
            )
        )
    return ranked(found)


def idle_experts(config: Mapping[str, Any], rows: Sequence[dict]) -> list[Finding]:
    """Collapsed experts of a run, from what ``RunFolder.config()`` and ``metrics()`` return."""
    if not any("expert_load" in row for row in rows):
        return []
    model = ModelConfig(**config.get("model", {}))
    return collapsed(rows, model.num_experts_per_tok, layers=model.sparse_layers)


def _state(rows: Sequence[dict], events: Sequence[dict]) -> Finding:
    """Without an exit code: what the event log says about how the run ended."""
    kinds = [e["kind"] for e in events]
    # Events before the last start belong to an earlier try of the same run.
    begin = len(kinds) - 1 - kinds[::-1].index("start") if "start" in kinds else 0
    latest = events[begin:]
    last = rows[-1] if rows else {}
    at = f"last logged step {last.get('step', 'none')} of {last.get('steps', 'an unknown number')}"
    signals = [e for e in latest if e["kind"] == "signal"]
    if signals:
        fields = ", ".join(f"{k}={v}" for k, v in signals[-1].items() if k not in ("kind", "time"))
        return Finding(
            "stopped by a signal",
            "exit",
            "warning",
            (f"event signal: {fields or 'no fields'}", at),
            "resume from the last checkpoint",
        )
    if any(e["kind"] == "finish" for e in latest):
        return Finding("finished", "exit", "note", ("event finish is there", at), "nothing to do for the process")
    return Finding(
        "not finished",
        "exit",
        "note",
        ("no event finish", at),
        "if the process is gone: triage again with its exit code and the kernel log; else it is still running",
    )


def _memory(rows: Sequence[dict]) -> list[Finding]:
    steps, rss = column(last_of_each_step(rows), "rss_mb")
    keep = np.isfinite(rss)
    if keep.sum() < _FEWEST_MEMORY_ROWS:
        return []
    steps, rss = longest_process(steps[keep], rss[keep])
    if steps.size < _FEWEST_MEMORY_ROWS:
        return []
    finding = leak_finding(steps, rss)
    return [finding] if finding else []
