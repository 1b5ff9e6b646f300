"""The tokenizer one trains: its pre-tokens, that it is the same each time, what it refuses."""

import pytest
from tokenizer_zoo import TEXTS

from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import decode, encode
from workbench.errors import DataError, SettingError

SMALL = train_tokenizer(TEXTS, 400)


def test_pretokens_tickers_digits_and_chinese():
    def pieces(text, tokenizer=SMALL):
        # Words are what merges cannot cross; word ids say which token belongs to which.
        words = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).word_ids
        encoded = encode(tokenizer, text)
        spans = {}
        for word, start, end in zip(words, encoded.starts, encoded.ends, strict=True):
            first, last = spans.get(word, (start, end))
            spans[word] = (min(first, start), max(last, end))
        return [text[a:b] for a, b in spans.values()]

    assert pieces("Gu ($QNTR), it's $AAPL!") == ["Gu", " (", "$QNTR", "),", " it", "'s", " ", "$AAPL", "!"]
    assert pieces("顾安雅在2023年") == ["顾", "安", "雅", "在", "2", "0", "2", "3", "年"]
    assert pieces("代码$QNTR。") == ["代", "码", "$QNTR", "。"]
    assert pieces("a\r\n\r\nb") == ["a", "\r\n", "\r\n", "b"]
    assert pieces("$toolong $ABCDEF $5") == ["$", "toolong", " $", "ABCDEF", " $", "5"]
    longer = train_tokenizer(TEXTS, 400, han_run=4)
    assert pieces("首席执行官", longer) == ["首席执行", "官"]


def test_training_is_deterministic_and_limits_are_told():
    again = train_tokenizer(iter(TEXTS), 400)
    assert again.backend_tokenizer.to_str() == SMALL.backend_tokenizer.to_str()
    assert len(SMALL) <= 400
    bytes_only = train_tokenizer(TEXTS, 260)  # no merges, and every text still works
    assert len(bytes_only) == 260
    for text in ["然🙂", "\x00\u0301", "क्‍ष مرحبا"]:
        ids = encode(bytes_only, text).ids
        assert len(ids) == len(text.encode()) and decode(bytes_only, ids) == text
    with pytest.raises(SettingError, match="vocab_size=259 .* at least 260"):
        train_tokenizer(TEXTS, 259)
    with pytest.raises(SettingError, match="han_run=0"):
        train_tokenizer(TEXTS, 400, han_run=0)
    for nothing in ([], ["", ""]):
        with pytest.raises(DataError, match="no text"):
            train_tokenizer(nothing, 400)
