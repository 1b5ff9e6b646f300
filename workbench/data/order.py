"""Which sample comes when: one permutation for every rank, computed, never stored.

``permute(i, n, key)`` is a bijection of 0..n-1 chosen by ``key``: a Feistel network over the
bits that hold n - 1, the two halves of any width changed in turn (Luby and Rackoff 1988), with
values outside the range walked on until they fall inside (Black and Rogaway 2002, "cycle
walking"; less than two turns on average). It needs no table, so position 10**9 costs what
position 0 costs, and every rank, worker and resumed run computes the same order from (seed,
epoch) alone.

It is a shuffle, not a cipher: eight rounds of a 64-bit mixer are enough to pass the tests for
uniform positions; do not use it to hide anything.
"""

from functools import lru_cache

import numpy as np

_ROUNDS = 8
_FEW = 64  # indices up to which plain integers are quicker than arrays
_MASK64 = (1 << 64) - 1
_A, _B, _C = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """A 64-bit mix of an integer (the finaliser of SplitMix64, Steele et al. 2014, figure 15)."""
    z = (value + _A) & _MASK64
    z = ((z ^ (z >> 30)) * _B) & _MASK64
    z = ((z ^ (z >> 27)) * _C) & _MASK64
    return z ^ (z >> 31)


def key_of(*parts: int) -> int:
    """One 64-bit key out of several integers; their order matters."""
    key = 0
    for part in parts:
        key = mix(key ^ mix(part & _MASK64))
    return key


def permute(index: np.ndarray | int, n: int, key: int) -> np.ndarray:
    """Where ``index`` (int array of any shape, values in 0..n-1) lies after shuffling n items by ``key``."""
    if n < 1:
        raise ValueError(f"permute: n={n}, expected at least 1")
    if np.size(index) <= _FEW:
        few = [permute_one(i, n, key) for i in np.ravel(index).tolist()]
        return np.array(few, np.int64).reshape(np.shape(index))
    value = np.atleast_1d(np.asarray(index, dtype=np.uint64))  # NumPy warns of overflow in scalars only
    if value.size and int(value.max()) >= n:
        raise ValueError(f"permute: index {int(value.max())} is outside 0..{n - 1}")
    out = _feistel(value, n, key)
    outside = out >= n
    while outside.any():
        out[outside] = _feistel(out[outside], n, key)
        outside = out >= n
    return out.astype(np.int64).reshape(np.shape(index))


def permute_one(index: int, n: int, key: int) -> int:
    """``permute`` of one index, in plain integers: quicker than an array of one."""
    if not 0 <= index < n:
        raise ValueError(f"permute: index {index} is outside 0..{n - 1}")
    width, keys = (n - 1).bit_length(), _round_keys(key)
    low = width - width // 2
    low_mask, high_mask = (1 << low) - 1, (1 << (width - low)) - 1
    while True:
        high, rest = index >> low, index & low_mask
        for turn in range(0, _ROUNDS, 2):
            high ^= _mix_one(rest, keys[turn]) & high_mask
            rest ^= _mix_one(high, keys[turn + 1]) & low_mask
        index = (high << low) | rest
        if index < n:
            return index


def _feistel(value: np.ndarray, n: int, key: int) -> np.ndarray:
    width, keys = (n - 1).bit_length(), _round_keys(key)
    low = width - width // 2
    low_mask, high_mask = np.uint64((1 << low) - 1), np.uint64((1 << (width - low)) - 1)
    high, rest = value >> np.uint64(low), value & low_mask
    for turn in range(0, _ROUNDS, 2):
        high = high ^ (_mix_array(rest, keys[turn]) & high_mask)
        rest = rest ^ (_mix_array(high, keys[turn + 1]) & low_mask)
    return (high << np.uint64(low)) | rest


@lru_cache(maxsize=4096)
def _round_keys(key: int) -> tuple[int, ...]:
    return tuple(key_of(key, turn) for turn in range(_ROUNDS))


def _mix_one(value: int, key: int) -> int:
    z = (value * _A & _MASK64) ^ key
    z = (z ^ (z >> 30)) * _B & _MASK64
    z = (z ^ (z >> 27)) * _C & _MASK64
    return z ^ (z >> 31)


def _mix_array(value: np.ndarray, key: int) -> np.ndarray:
    z = value * np.uint64(_A) ^ np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_B)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_C)
    return z ^ (z >> np.uint64(31))
