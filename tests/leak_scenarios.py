"""Pipelines that leak and pipelines that do not, watched in a process of their own; prints JSON.

A process that has run other things holds freed memory, which hides the growth to be measured.
"""

import json

import mindspore.dataset as ds
import numpy as np

from workbench.diagnose.leaks import watch_dataset

LARGE = {i: str(i) for i in range(50000)}
KEPT = []


def from_closure():
    return (LARGE.get(i) for i in range(500))


def gathering():
    for i in range(500):
        KEPT.append(bytearray(16384))
        yield i


def mindspore_map(function):
    source = ds.GeneratorDataset(lambda: ((np.array([i], np.int32),) for i in range(500)), ["x"], shuffle=False)
    mapped = source.map(function, ["x"])
    return lambda: mapped.create_dict_iterator(num_epochs=1, output_numpy=True)


def lookup(x):
    return np.array([len(LARGE[int(x[0])])], np.int32)


def gather(x):
    KEPT.append(bytearray(16384))
    return x


class IteratorOfAnEpoch:
    def __init__(self):
        self.buffer = bytearray(2**20)
        KEPT.append(self)

    def __iter__(self):
        return iter(range(10))


def told(watch):
    finding = watch.finding()
    cause, layer, first = (finding.cause, finding.layer, finding.evidence[0]) if finding else (None, None, "")
    return {
        "cause": cause,
        "layer": layer,
        "evidence": first,
        "passes": watch.passes,
        "rows": [int(r) for r in watch.rows],
    }


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "closure": told(watch_dataset(from_closure, rows=2000)),
                "map with a closure": told(watch_dataset(mindspore_map(lookup), rows=2000)),
                "gathering": told(watch_dataset(gathering, rows=2000)),
                "map that gathers": told(watch_dataset(mindspore_map(gather), rows=2000)),
                "iterator an epoch": told(watch_dataset(IteratorOfAnEpoch, rows=500, samples=50)),
            }
        )
    )
