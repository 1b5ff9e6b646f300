"""A small byte-level BPE of one's own, for text that has Chinese, English and tickers in it.

    train_tokenizer(texts, vocab_size=2048)  →  a fast Hugging Face tokenizer

Words, single digits, runs of punctuation, line ends and tickers (``$QNTR``) are pre-tokens, as in
GPT-4's pattern. Chinese is written without spaces, so a whole clause would be one pre-token and a
name would be cut differently in every sentence; a pre-token therefore holds at most ``han_run``
ideographs.

Costs memory for every distinct pre-token of the texts and time in proportion to their length, on
all cores. Has no normaliser: Unicode form and width belong to ``workbench.data.cleaning``.
"""

from typing import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workbench.data.tokenizing import check_tokenizer
from workbench.errors import DataError, SettingError

UNKNOWN, BEGIN, END, PADDING = "<unk>", "<bos>", "<eos>", "<pad>"
SPECIAL_TOKENS = (UNKNOWN, BEGIN, END, PADDING)  # ids 0 to 3: id 0 is never padding


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, han_run: int = 1) -> PreTrainedTokenizerFast:
    """A byte-level BPE with ``vocab_size`` entries, special tokens included; the same texts give the same bytes.

    A pre-token holds at most ``han_run`` ideographs. Raises SettingError for a ``vocab_size`` below
    260 (256 bytes and 4 special tokens) and DataError where there is no text.
    """
    if vocab_size < 256 + len(SPECIAL_TOKENS):
        raise SettingError(f"vocab_size={vocab_size} is not allowed: at least {256 + len(SPECIAL_TOKENS)}")
    if han_run < 1:
        raise SettingError(f"han_run={han_run} is not allowed: at least 1 ideograph a pre-token")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_split_pattern(han_run)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    seen = 0

    def counted() -> Iterable[str]:
        nonlocal seen
        for text in texts:
            seen += len(text)
            yield text

    tokenizer.train_from_iterator(counted(), trainer)
    if not seen:
        raise DataError("no text to train a tokenizer on; the given documents are all empty")
    return check_tokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END, pad_token=PADDING
        )
    )


def _split_pattern(han_run: int) -> str:
    """The pre-tokens, tried in this order at each place; every character belongs to exactly one."""
    return "|".join(
        (
            r"\$[A-Z]{1,5}(?![A-Za-z])",  # a ticker, without a space: one form after "代码" and after "the ticker "
            rf"\p{{Han}}{{1,{han_run}}}",
            r"'(?:[sdmtSDMT]|ll|ve|re|LL|VE|RE)(?!\p{L})",  # English clitics
            r" ?(?:(?!\p{Han})[\p{L}\p{M}])+",  # a word
            r"\p{N}",  # digits one by one
            r" ?(?:(?!\$[A-Z]{1,5}(?![A-Za-z]))[^\s\p{L}\p{M}\p{N}])+",  # punctuation, which stops before a ticker
            r"\r?\n",
            r"\s+(?!\S)|\s+",
            r"[\s\S]",  # nothing is left, but no character may ever be lost
        )
    )
