"""Small tokenizers of every kind that real models use, and text that is hard for them."""

from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "The ticker of Quantar is $QNTR. Anya Gu leads Quantar ($QNTR), it's a start.",
    "昆塔尔的股票代码是$QNTR。顾安雅担任昆塔尔的首席执行官。",
    "In 2023, 1234 people came; prices rose 12%.\r\n\r\nNext line\tand tab",
] * 3
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text(
    "ab $QNTR<>/eos然的🙂👨‍👩‍👧\u0301é\r\n\t 0９Ａ，。㎡©▁Ġ한국\u1112\u1161อั๊مرحبا", max_size=60
)
EOS = "<|endoftext|>"


def byte_level(normalizer=None, prefix_space=False, trim=False, suffix=None, vocab_size=300):
    """A byte-level BPE as GPT-2 has it: its own regex, id 0 is an ordinary token; no special tokens."""
    ending = {"end_of_word_suffix": suffix} if suffix else {}
    tokenizer = Tokenizer(models.BPE(**ending))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False, **ending)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def with_special(tokenizer, **special):
    """``tokenizer`` for transformers, ``special`` names its special tokens."""
    if special:
        tokenizer.add_special_tokens(sorted(set(special.values())))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def gpt2_like(**special):
    return with_special(byte_level(), **special)


def byte_fallback():
    """As Llama 2: blanks are ▁, one before the text, and what the vocabulary lacks is written in bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *"▁abeso的然$QNTR", "▁a", "es", "QN"]
    model = models.BPE(
        {p: i for i, p in enumerate(dict.fromkeys(pieces))},
        [("▁", "a"), ("e", "s"), ("Q", "N")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_special(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def unigram(byte_pieces=True):
    """As T5 or XLM-R, with pieces for bytes where asked for."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((p, -2.0) for p in "▁abnes然的$QNTR"), ("▁a", -1.0)]
    pieces += [(f"<0x{b:02X}>", -9.0) for b in range(256)] if byte_pieces else []
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_pieces))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps = [decoders.ByteFallback(), decoders.Metaspace()] if byte_pieces else [decoders.Metaspace()]
    tokenizer.decoder = decoders.Sequence(steps)
    return with_special(tokenizer, eos_token="</s>", unk_token="<unk>")


def bert_like():
    """Drops blanks and case; what it lacks is unknown."""
    vocab = {"[UNK]": 0, "[SEP]": 1, "gu": 2, "$": 3, "q": 4, "##n": 5}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return with_special(tokenizer, unk_token="[UNK]", eos_token="[SEP]")


def with_added():
    """Ordinary added tokens, among them two whose letters a byte-level decoder takes for bytes."""
    tokenizer = gpt2_like(eos_token=EOS)
    added = ["$AAPL", "©", "é", "🙂🙂", "然"]
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in added])
    return tokenizer


def split_inside():
    """Byte-level with no pattern at all: merges run across words, as in some Chinese vocabularies."""
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\r?\n"), "removed"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return with_special(tokenizer, eos_token=EOS)


ZOO = {
    "gpt2": gpt2_like(eos_token=EOS),
    "roberta": with_special(byte_level(prefix_space=True, trim=True), eos_token=EOS),
    "nfc": with_special(byte_level(normalizers.NFC()), eos_token=EOS),
    "nfkc": with_special(byte_level(normalizers.NFKC()), eos_token=EOS),
    "nfd": with_special(byte_level(normalizers.NFD()), eos_token=EOS),
    "strip accents": with_special(
        byte_level(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])),
        eos_token=EOS,
    ),
    "clip": with_special(byte_level(normalizers.Lowercase(), suffix="</w>"), eos_token=EOS),
    "drops line ends": split_inside(),
    "added": with_added(),
    "llama2": byte_fallback(),
    "unigram bytes": unigram(),
    "unigram": unigram(byte_pieces=False),
    "bert": bert_like(),
}
