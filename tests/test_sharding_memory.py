"""The allocator's peak on each of two ranks, plain and with ZeRO-1."""

import re
from pathlib import Path

from workbench.launching import launch

MIB = 2**20


def peaks_of(sharding: str) -> list[tuple[int, int]]:
    """(bytes of moments as told, MiB of the allocator's peak) of each rank."""
    environment = {"MS_DEV_RUNTIME_CONF": "graph_pipeline:False,memory_statistics:True"}
    said = launch(str(Path(__file__).parent / "ranks_memory.py"), [sharding], environment=environment)
    return [
        (int(re.search(r"moments (\d+)", text)[1]), int(re.search(r"peak used mem:(\d+)M", text)[1])) for text in said
    ]


def test_each_rank_holds_half_of_the_moments_by_the_allocators_count_too():
    """96 MiB of moments: 48 fewer, 24 more for the slices of the weights; the rest is work space of either."""
    plain, sharded = peaks_of("none"), peaks_of("zero1")
    assert [told for told, _ in plain] == [96 * MIB] * 2 and [told for told, _ in sharded] == [48 * MIB] * 2
    for (_, before), (_, after) in zip(plain, sharded):
        assert before - after >= 16, (plain, sharded)
