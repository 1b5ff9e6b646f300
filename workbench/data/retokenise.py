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
        store = source.store
        pieces = source.pieces_of(rows)
        wanted = np.unique(pieces[pieces[:, 4] > 0, 3]).tolist()
        made = tokenise(self.encoder, [rendered_of(store.record(d)) for d in wanted])
        for d, (tokens, _) in zip(wanted, made):
            if len(tokens) != store.offsets[d + 1] - store.offsets[d]:
                raise AssertionError(
                    f"document {d} of {source.name} gives {len(tokens)} tokens, not those of the store"
                )
        of = dict(zip(wanted, made))
        inputs, targets, flags = [], [], []
        for begin, length, _, d, number in pieces.tolist():
            if number:
                tokens, marks = of[d]
                start = begin - int(store.offsets[d])
            else:
                tokens, marks, start = np.zeros(length + 1, np.int32), np.zeros(length + 1, np.uint8), 0
            inputs.append(tokens[start : start + length])
            targets.append(tokens[start + 1 : start + length + 1])
            flags.append(marks[start + 1 : start + length + 1])
        return collate(source, pieces, *(np.concatenate(part) for part in (inputs, targets, flags)))
