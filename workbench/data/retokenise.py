"""Tokens made again from the kept text, in the middle of a dataset pipeline, instead of read from a store.

Each window needs its whole document tokenised, because tokens before it decide where its own
begin; documents of a batch are encoded in one call. The batch is the same to the bit as that of
the store, which is the proof that a prepared store changes nothing but the cost.
"""

import numpy as np

from workbench.data.encoding import Encoder, EncoderSpec
from workbench.data.sources import SampleSource, collate
from workbench.data.stages import rendered_of, tokenise


class Retokeniser:
    """Blocks of a source from the text of its documents."""

    def __init__(self, spec: EncoderSpec) -> None:
        self.encoder = Encoder(spec)

    def block(self, source: SampleSource, rows: np.ndarray) -> np.ndarray:
        """As ``SampleSource.block``; raises AssertionError where the text gives other tokens than it did before."""
        store, lay = source.store, source.layout
        windows, row_starts = source.windows_of(rows)
        documents = lay.document[windows]
        wanted = np.unique(documents).tolist()
        made = tokenise(self.encoder, [rendered_of(store.record(d)) for d in wanted])
        for d, (tokens, _) in zip(wanted, made):
            if len(tokens) != store.offsets[d + 1] - store.offsets[d]:
                raise AssertionError(f"document {d} of {source.name} gives {len(tokens)} tokens, not those of the store")
        of = dict(zip(wanted, made))
        inputs, targets, flags = [], [], []
        for window, d in zip(windows.tolist(), documents.tolist()):
            start = int(lay.begin[window] - store.offsets[d])
            stop = start + int(lay.length[window])
            tokens, marks = of[d]
            inputs.append(tokens[start:stop])
            targets.append(tokens[start + 1 : stop + 1])
            flags.append(marks[start + 1 : stop + 1])
        joined = (np.concatenate(part) for part in (inputs, targets, flags))
        return collate(source, windows, row_starts, *joined)
