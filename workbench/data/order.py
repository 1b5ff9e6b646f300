"""Which sample comes when: one permutation for every rank, computed, never stored.

``permute(i, n, key)`` is a bijection of 0..n-1 chosen by ``key``: a Feistel network over the
smallest even number of bits that holds n (Luby and Rackoff 1988), with values outside the range
walked on until they fall inside (Black and Rogaway 2002, "cycle walking"). It needs no table,
so position 10**9 costs what position 0 costs, and every rank, worker and resumed run computes
the same order from (seed, epoch) alone.

It is a shuffle, not a cipher: eight rounds of a 64-bit mixer are enough to pass the tests for
uniform positions; do not use it to hide anything.
"""

import numpy as np

_ROUNDS = 8
_MASK64 = (1 << 64) - 1


def mix(value: int) -> int:
    """A 64-bit mix of an integer (the finaliser of SplitMix64, Steele et al. 2014, figure 15)."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
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
    value = np.asarray(index, dtype=np.uint64)
    if value.size and int(value.max()) >= n:
        raise ValueError(f"permute: index {int(value.max())} is outside 0..{n - 1}")
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    out = _feistel(value, half, key)
    outside = out >= n
    while outside.any():
        out = np.where(outside, _feistel(out, half, key), out)
        outside = out >= n
    return out.astype(np.int64)


def _feistel(value: np.ndarray, half: int, key: int) -> np.ndarray:
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = value >> shift, value & mask
    for turn in range(_ROUNDS):
        left, right = right, left ^ (_mix_array(right, key_of(key, turn)) & mask)
    return (left << shift) | right


def _mix_array(value: np.ndarray, key: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = value * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
