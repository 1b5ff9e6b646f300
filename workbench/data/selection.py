"""An exact share of a stream of samples, chosen by their content.

    mask, carried = choose(hashes, 0.15, Fraction(0))      # of 10,000 samples exactly 1,500

Which samples are chosen depends on their text and the seed alone, so the same set comes out however
many workers prepare a block. How many is exact: the fraction of a sample that a block leaves over
is carried to the next as a ``Fraction``, and after any blocks the total is floor(total * share).

Costs one sort a block. Over blocks the choice is exact in number, not the smallest hashes of the
whole stream: another length of block chooses other samples, so it must be one fixed setting.
"""

import hashlib
from fractions import Fraction

import numpy as np

from workbench.errors import SettingError


def content_hash(text: str, seed: int) -> int:
    """64 bits of BLAKE2b over ``seed`` and the UTF-8 of ``text``, as 0 to 2**64 - 1."""
    digest = hashlib.blake2b(f"{seed}\0".encode(), digest_size=8)
    digest.update(text.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big")


def choose(hashes: np.ndarray, share: float | Fraction, carried: Fraction) -> tuple[np.ndarray, Fraction]:
    """(mask bool (n,), the fraction of a sample to carry on) for a block of ``hashes``, uint64 (n,).

    The floor(n * share + carried) samples with the smallest hashes, of equal ones the earlier.
    ``share`` is taken as it is written: 0.15 is 3/20. The stream begins with ``carried`` 0. Raises
    SettingError for a share outside 0 to 1 and ValueError for a carried value outside [0, 1).
    """
    if not 0 <= carried < 1:
        raise ValueError(f"carried={carried}: what choose gave for the block before, at least 0 and below 1")
    due = len(hashes) * _exact(share) + carried
    count = due.numerator // due.denominator
    mask = np.zeros(len(hashes), bool)
    mask[_order(hashes)[:count]] = True
    return mask, due - count


def candidates(hashes: np.ndarray, share: float | Fraction) -> np.ndarray:
    """Positions that ``choose`` may take from this block, whatever is carried: int64, best first.

    They are sorted by (hash, position), and ``choose`` takes a head of them: at most
    floor(n * share) + 1 samples, which can be prepared before the blocks in front are done.
    """
    exact = _exact(share)
    most = min(len(hashes), int(len(hashes) * exact) + 1) if exact else 0
    return _order(hashes)[:most]


def _order(hashes: np.ndarray) -> np.ndarray:
    return np.argsort(np.asarray(hashes, np.uint64), kind="stable")


def _exact(share: float | Fraction) -> Fraction:
    exact = share if isinstance(share, Fraction) else None
    if exact is None and np.isfinite(share):
        exact = Fraction(str(float(share)))
    if exact is None or not 0 <= exact <= 1:
        raise SettingError(f"share={share} is not allowed: 0 to 1")
    return exact
