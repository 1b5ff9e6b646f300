"""A matrix product with a weight, and a table of embeddings.

    N rows   D hidden size   V rows of a table

Weights are drawn from normal(0, scale) and biases are 0, as in ``transformers``' Llama.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Linear(nn.Cell):
    """``x @ weight^T + bias``: (N, in) -> (N, out); weight (out, in) as in torch, bias (out,) or none.

    With another ``compute_dtype`` than float32 both operands are cast for the product and the result
    is cast back to float32; the bias is added in float32.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        scale: float,
        rng: np.random.Generator,
        compute_dtype: ms.dtype,
        bias: bool = False,
    ) -> None:
        super().__init__()
        values = rng.normal(0.0, scale, (out_size, in_size)).astype(np.float32)
        self.weight = ms.Parameter(ms.Tensor(values), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(out_size, np.float32)), name="bias") if bias else None
        self.out_size, self.compute_dtype = out_size, compute_dtype
        self.matmul, self.bias_add = ops.MatMul(transpose_b=True), ops.BiasAdd()

    def construct(self, x):
        product = linear(self.matmul, x, self.weight, self.compute_dtype)
        return product if self.bias is None else self.bias_add(product, self.bias)


def linear(matmul, x, weight, compute_dtype):
    """``matmul`` (``ops.MatMul(transpose_b=True)``) of x (N, in) and weight (out, in) in ``compute_dtype``, float32 out."""
    if compute_dtype == ms.float32:
        return matmul(x, weight)
    return ops.cast(matmul(ops.cast(x, compute_dtype), ops.cast(weight, compute_dtype)), ms.float32)


class Embedding(nn.Cell):
    """A table (V, D), normal(0, scale)."""

    def __init__(self, rows: int, size: int, scale: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(rng.normal(0.0, scale, (rows, size)).astype(np.float32)), name="weight")

    def construct(self, ids):
        return ops.gather(self.weight, ids, 0)


class TaskAwareEmbedding(nn.Cell):
    """What a task adds to the token embeddings: (N,) task ids -> (N, D).

    Zero at the start, so that the logits of step 0 do not depend on the task. Row 0 means no task
    and stays zero: it is masked out, so its gradient is exactly zero.
    """

    def __init__(self, tasks: int, size: int) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.zeros((tasks, size), np.float32)), name="weight")
        real = np.ones((tasks, size), np.float32)
        real[0] = 0
        self.real = ms.Tensor(real)

    def construct(self, task_ids):
        return ops.gather(ops.mul(self.weight, self.real), task_ids, 0)
