"""Tokenizers with chat templates in the manner of well-known models, written for the tests."""

from dataclasses import dataclass

from workbench.data.tokenizing import load_tokenizer


@dataclass(frozen=True)
class Style:
    """A chat template with the special tokens it uses; ``bos`` "" is none."""

    template: str
    special: tuple[str, ...]
    bos: str
    eos: str


_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou answer briefly.<|im_end|>\\n' }}{% endif %}"
)
# The last answer comes with an empty block for reasoning, earlier ones without.
_THINKING = """{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\\n' -}}
{%- if m.role == 'assistant' and loop.last -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{{- m.content + '<|im_end|>\\n' -}}
{%- endfor -%}"""
_HEADERS = (
    "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
)
_BARS = """{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}
{{- '<｜User｜>' + m.content }}{% else %}{{ '<｜Assistant｜>' + m.content + eos_token }}{% endif %}{% endfor %}"""
_BRACKETS = """{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}
{%- elif m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}
{{- ' ' + m.content + eos_token }}{% endif %}{% endfor %}"""
_TWO_ENDS = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
)

STYLES = {
    "qwen-like": Style(_CHATML, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"), "", "<|endoftext|>"),
    "qwen-like, turn end is text end": Style(
        _DEFAULT_SYSTEM + _CHATML, ("<|im_start|>", "<|im_end|>"), "", "<|im_end|>"
    ),
    "qwen-like, thinking": Style(_THINKING, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"), "", "<|endoftext|>"),
    "llama-like": Style(
        "{{ bos_token }}" + _HEADERS,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|begin_of_text|>",
        "<|end_of_text|>",
    ),
    "llama-like, without begin": Style(
        _HEADERS,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|begin_of_text|>",
        "<|end_of_text|>",
    ),
    "deepseek-like": Style(
        _BARS,
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
    ),
    "brackets, no system": Style(_BRACKETS, ("<s>", "</s>"), "<s>", "</s>"),
    "two ends": Style(
        _TWO_ENDS, ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|endoftext|>"), "", "<|endoftext|>"
    ),
}


def chat_tokenizer(samples, name: str, template: str | None = None):
    """The bundled tokenizer with the special tokens and the template of ``STYLES[name]``."""
    style = STYLES[name]
    tokenizer = load_tokenizer(str(samples / "tokenizer"))
    tokenizer.add_special_tokens({"additional_special_tokens": list(style.special)})
    tokenizer.eos_token = style.eos
    tokenizer.bos_token = style.bos or None
    tokenizer.chat_template = style.template if template is None else template
    return tokenizer
