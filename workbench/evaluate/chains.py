"""Chain depth: how many questions in a row, each about the answer before, does a model get right?

A chain is a list of questions with one exact gold answer each; from the second on, a question
refers to the answer before it ("Where was that person born?"). The model is asked in turn, with
all earlier questions and its own answers in front of it, and must give the gold answer, no more
and no less, up to the end of the line, or of the turn where the training used a chat template: prompts
are written and encoded by the ``templates`` of the training. The depth of a chain is its longest
correct prefix; the first wrong answer ends it.

What the article's script does differently, and why not here: it never compares with a gold
answer, so a model that always says the same scores full depth under a lenient check; it drops
the earlier questions from the context; and depth is capped by chain length, so lengths are
reported beside it.

Beside the depth: the share of chains still right at each hop, the accuracy of each hop when the
answers before it are given (``given``), and a constant answer as a baseline.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

import numpy as np

from workbench.data.cleaning import CleaningPolicy, clean
from workbench.data.encoding import Encoder
from workbench.data.templates import PLAIN, Templates, language_of
from workbench.data.tokenizing import spec_of
from workbench.errors import DataError
from workbench.evaluate.intervals import Estimate, bootstrap
from workbench.model.generate import generate

MAX_ANSWER_TOKENS = 16
ROWS = 32  # prompts decoded together; small, so that late hops with few chains use the same compiled function


@dataclass(frozen=True)
class Chain:
    """Questions and gold answers in order, in one language."""

    id: str
    language: str
    turns: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.turns)


@dataclass(frozen=True)
class ChainResult:
    """One chain as the model went through it; ``answers`` ends with the first wrong one."""

    chain: Chain
    answers: tuple[str, ...]
    depth: int


@dataclass(frozen=True)
class ChainReport:
    """Depth over all chains, with baselines; arrays are indexed by hop from 0."""

    results: tuple[ChainResult, ...]
    depth: Estimate
    constant_depth: Estimate  # always answering what is most often right at that hop
    survival: np.ndarray  # share of chains right up to and with hop i, among those that long
    given: np.ndarray  # accuracy of hop i with gold answers before it
    lengths: dict[int, int]  # chain length → chains


def read_chains(path: str | Path) -> list[Chain]:
    """Chains of a .jsonl file (``id``, ``language``, ``turns``). Raises DataError with the line."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"chains={str(path)!r}: no such file; give a .jsonl of chains of questions")
    chains = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            turns = tuple((t["question"], t["answer"]) for t in row["turns"])
            chains.append(Chain(str(row["id"]), row.get("language") or language_of(turns[0][0]), turns))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f"{file}:{number}: not a chain ({type(error).__name__}: {error})") from error
    if not chains:
        raise DataError(f"{file}: no chains in it")
    return chains


def evaluate_chains(
    model,
    tokenizer,
    chains: Sequence[Chain],
    task_id: int = 0,
    templates: Templates = PLAIN,
    policy: CleaningPolicy = CleaningPolicy(),
) -> ChainReport:
    """Ask every chain, greedily and in batches by hop. ``task_id`` is given to every token.

    ``templates`` and ``policy`` are those that the tasks were prepared with: under NFKC, for
    instance, the model has never seen 问题：but 问题: . Gold answers are cleaned likewise.
    """
    encoder = Encoder(spec_of(tokenizer))
    prompts = [[_prompt(encoder, chain, hop, templates, policy) for hop in range(len(chain))] for chain in chains]
    # One length for all hops, so that nothing is compiled again as the conversation grows.
    room = MAX_ANSWER_TOKENS + max(len(ids) for chain in prompts for ids in chain)
    ends = answer_ends(tokenizer, templates)
    answers: list[list[str]] = [[] for _ in chains]
    alive = list(range(len(chains)))
    given_right: list[list[bool]] = [[] for _ in range(max(len(c) for c in chains))]
    for hop in range(max(len(c) for c in chains)):
        alive = [i for i in alive if len(chains[i]) > hop]
        # A chain that is still right has given gold answers so far, so both questions are one.
        reached = [i for i, chain in enumerate(chains) if len(chain) > hop]
        said = generate(
            model,
            [prompts[i][hop] for i in reached],
            max_new_tokens=MAX_ANSWER_TOKENS,
            stop_ids=ends,
            task_ids=[task_id] * len(reached),
            batch_size=ROWS,
            length_step=room,
        )
        for i, ids in zip(reached, said):
            answer = tokenizer.decode(ids, skip_special_tokens=True).split("\n")[0].strip()
            right = answer == clean(chains[i].turns[hop][1], policy).text
            given_right[hop].append(right)
            if i in alive:
                answers[i].append(answer)
                if not right:
                    alive.remove(i)
    results = tuple(
        ChainResult(chain, tuple(said), sum(a == clean(g, policy).text for a, (_, g) in zip(said, chain.turns)))
        for chain, said in zip(chains, answers)
    )
    return _report(results, given_right)


def prompt_ids(
    tokenizer, chain: Chain, hop: int, templates: Templates = PLAIN, policy: CleaningPolicy = CleaningPolicy()
) -> list[int]:
    """Tokens up to the answer of question ``hop``: begin of text, and each part as in training."""
    return _prompt(Encoder(spec_of(tokenizer)), chain, hop, templates, policy)


def _prompt(encoder: Encoder, chain: Chain, hop: int, templates: Templates, policy: CleaningPolicy) -> list[int]:
    texts, control = templates.prompt(chain.turns, hop, chain.language)
    texts = [text if scaffold else clean(text, policy).text for text, scaffold in zip(texts, control)]
    return [encoder.spec.begin, *(i for ids, _ in encoder.encode(texts, control) for i in ids.tolist())]


def answer_ends(tokenizer, templates: Templates = PLAIN) -> list[int]:
    """The ids that end an answer: end of text, and the special token that ends a chat turn, or else line ends.

    A template that ends a turn without a special token ends it with a line, as plain answers do.
    """
    if templates.chat is not None:
        encoder = Encoder(spec_of(tokenizer))
        end = encoder.encode([templates.chat.end], [True])[0][0].tolist()
        if control := [i for i in end if i in encoder.spec.control]:
            return sorted({tokenizer.eos_token_id, control[0]})
    return line_ends(tokenizer)


def line_ends(tokenizer) -> list[int]:
    """The ids that end an answer: end of text, and every token with a line end in it."""
    ids = range(len(tokenizer))
    texts = tokenizer.batch_decode([[i] for i in ids])
    return sorted({tokenizer.eos_token_id, *(i for i, text in zip(ids, texts) if "\n" in text)})


def _report(results: tuple[ChainResult, ...], given_right: list[list[bool]]) -> ChainReport:
    chains = [r.chain for r in results]
    longest = max(len(c) for c in chains)
    common = [Counter(c.turns[h][1] for c in chains if len(c) > h).most_common(1)[0][0] for h in range(longest)]
    constant = []
    for chain in chains:
        depth = 0
        while depth < len(chain) and chain.turns[depth][1] == common[depth]:
            depth += 1
        constant.append(depth)
    survival = [np.mean([r.depth > h for r in results if len(r.chain) > h]) for h in range(longest)]
    return ChainReport(
        results,
        bootstrap(np.asarray([r.depth for r in results])),
        bootstrap(np.asarray(constant)),
        np.asarray(survival),
        np.asarray([np.mean(g) for g in given_right]),
        dict(sorted(Counter(len(c) for c in chains).items())),
    )
