"""What ranks get to see, counted by hand on small corpora with two domains."""

import numpy as np
import pytest

from workbench.data.layout import make_layout
from workbench.data.sharding import WAYS, balance_of_windows, share_out
from workbench.data.sources import SampleSource
from workbench.data.store import CUT, LOSS, Entry, StoreWriter, TokenStore


@pytest.fixture
def source(tmp_path):
    """100 documents of domain 0 in tokens 0 to 9, then 100 of domain 1 in tokens 10 to 999."""
    rng = np.random.default_rng(0)
    entries = [
        Entry(rng.integers(*((0, 10) if i < 100 else (10, 1000)), 30).astype(np.int32), np.full(30, CUT | LOSS))
        for i in range(200)
    ]
    writer = StoreWriter(tmp_path / "s")
    writer.add(entries, [0] * 200, [0] * 100 + [1] * 100)
    writer.close()
    store = TokenStore.open(tmp_path / "s")
    return SampleSource("base", store, make_layout(store, 32, 0.0), 0)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_one_permutation_covers_everything_once_and_a_seed_a_rank_does_not(ranks):
    parts = share_out(403, ranks, "one permutation", 7)
    seen = np.concatenate(parts)
    assert len(seen) == len(set(seen.tolist())) == 403 // ranks * ranks
    own = np.concatenate(share_out(403, ranks, "seed plus rank", 7))
    if ranks > 1:
        assert len(set(own.tolist())) < 0.85 * len(own)
        assert not set(parts[0].tolist()) & set(parts[1].tolist())
    assert np.concatenate(share_out(400, ranks, "contiguous", 7)).tolist() == list(range(400))


def test_contiguous_ranks_see_one_domain_each_and_their_losses_are_apart(source):
    balances = {way: balance_of_windows(source, 2, 4, way, 3) for way in WAYS}
    contiguous, one = balances["contiguous"], balances["one permutation"]
    assert contiguous.domain_share.round(6).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert contiguous.domain_spread == 1.0 and one.domain_spread < 0.35
    # Under the unigram model a token of domain 0 costs about ln(20), one of domain 1 about ln(1980).
    assert contiguous.loss[0] == pytest.approx(np.log(20), abs=0.1)
    assert contiguous.loss[3] == pytest.approx(np.log(1980), abs=0.3)
    assert contiguous.loss_spread > 4 > one.loss_spread * 2
    assert one.coverage == 1.0 and one.duplicates == 0
    assert balances["seed plus rank"].coverage < 0.8 and balances["seed plus rank"].duplicates > 40


def test_more_ranks_than_windows_leave_ranks_with_nothing_to_count(source):
    assert [len(p) for p in share_out(3, 4, "contiguous", 0)] == [0, 0, 0, 0]
