"""Perplexity of held-out text, beside the perplexity of a unigram model on the same tokens.

Every token with loss counts once (windows overlap, but each target belongs to one of them), so
the perplexity does not depend on how the text was cut, except through the context a token has.
The unigram model knows how often each token occurs in the training text and nothing else; a
language model that does not beat it well has learnt nothing about order.

Cost: one forward pass over the validation rows. The interval resamples rows.
"""

import math
from dataclasses import dataclass
from typing import Mapping

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.data.sources import SampleSource
from workbench.data.store import LOSS, TokenStore
from workbench.errors import DataError
from workbench.evaluate.intervals import bootstrap
from workbench.model.transformer import Transformer


@dataclass(frozen=True)
class Perplexity:
    """exp(mean loss in nats) with its 95 % interval, over ``tokens`` tokens of ``rows`` rows."""

    value: float
    low: float
    high: float
    tokens: int
    rows: int

    @property
    def loss(self) -> float:
        return math.log(self.value)

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}] over {self.tokens:,} tokens"


class PerplexityMeter:
    """Measures the perplexity of one model on one source, compiled once and used at every evaluation."""

    def __init__(
        self, model: Transformer, source: SampleSource, batch_size: int = 16, max_rows: int | None = None
    ) -> None:
        """``max_rows`` bounds the cost: the first rows of the source, always the same ones.

        Raises DataError where the source has no rows.
        """
        if not len(source):
            raise DataError("there is no validation text: raise validation_share, or give more or longer documents")
        self.source, self.batch_size = source, batch_size
        self.rows = np.arange(min(len(source), max_rows or len(source)))
        self._losses = _compile_losses(model)

    def measure(self) -> Perplexity:
        """The perplexity at the model's current weights."""
        sums, counts = [], []
        for start in range(0, len(self.rows), self.batch_size):
            rows = self.rows[start : start + self.batch_size]
            # The last batch is filled up with its own rows, so that no second shape is compiled.
            filled = np.resize(rows, self.batch_size)
            told, asked = self._sums(self.source.batch(filled, filled))
            sums.append(told[: len(rows)])
            counts.append(asked[: len(rows)])
        return _perplexity(np.concatenate(sums), np.concatenate(counts))

    def row_losses(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        """The mean loss in nats of each row of a batch of ``batch_size`` rows; 0 for a row without targets."""
        sums, counts = self._sums(batch)
        return sums / np.maximum(counts, 1)

    def _sums(self, batch: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        names = ("input_ids", "position_ids", "segment_ids", "task_ids", "labels")
        losses = self._losses(*(ms.Tensor(batch[name]) for name in names)).asnumpy()
        return losses.sum(1), (batch["labels"] != -100).sum(1)


def _compile_losses(model: Transformer):
    def losses(input_ids, position_ids, segment_ids, task_ids, labels):
        hidden = model(input_ids, position_ids, segment_ids, task_ids)
        logits = ops.log_softmax(model.logits(hidden), -1)
        asked = ops.cast(ops.not_equal(labels, -100), ms.float32)
        picked = ops.gather_elements(logits, 2, ops.expand_dims(ops.maximum(labels, 0), 2))
        return ops.neg(ops.mul(ops.squeeze(picked, 2), asked))

    return ms.jit(losses)


def unigram_perplexity(
    train: TokenStore, source: SampleSource, vocab_size: int, max_rows: int | None = None
) -> Perplexity:
    """The perplexity on ``source`` of token frequencies counted in ``train``, with add-one smoothing.

    ``max_rows`` bounds the rows as in ``PerplexityMeter``.
    """
    asked = (np.asarray(train.flags) & LOSS) != 0
    counts = np.bincount(np.asarray(train.tokens)[asked], minlength=vocab_size) + 1.0
    nats = -np.log(counts / counts.sum())
    rows = np.arange(min(len(source), max_rows or len(source)))
    labels = source.batch(rows, rows)["labels"]
    picked = np.where(labels != -100, nats[np.maximum(labels, 0)], 0.0)
    return _perplexity(picked.sum(1), (labels != -100).sum(1))


def _perplexity(sums: np.ndarray, counts: np.ndarray) -> Perplexity:
    keep = counts > 0
    mean = bootstrap(sums[keep] / counts[keep], counts[keep])
    values = (mean.value, mean.low, mean.high)
    # Beyond 709 nats e^x is no float any more: a diverged model's perplexity is infinite, and no error.
    values = (math.inf if v > 709 else math.exp(v) for v in values)
    return Perplexity(*values, int(counts.sum()), int(keep.sum()))
