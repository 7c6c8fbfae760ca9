"""Fit: whether a draft head belongs to a target, and by what the two differ. Compares plain data, reads no file.

What an architecture gives is known from the sweep of docs/targets.md; the library has the last word at load.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .gguf_files.head import LAST_HIDDEN
from .head_info import HeadInfo
from .target_side import TargetSide
from .vocabulary import Vocabulary, differences

NO_TEXT = frozenset("cogvlm dream llada llada-moe rnd1".split())
NO_FEATURES = frozenset("deepseek4 glm5-next hy_v4 plamo2 qwen4exp".split())
NO_LAST_OUTPUT = frozenset(
    "bailingmoe3 deepseek2 deepseek32 dots3note glm-dsa kimi-k3 kimi-linear mamba mamba2 mistral4".split()
)
NO_POST_NORM = frozenset(
    """
    bailingmoe3 deepseek2 deepseek32 deepseek4 dots3note glm-dsa glm5-next hy_v4 kimi-k3 kimi-linear mistral4
    qwen4exp""".split()
)
NO_TREES = frozenset(
    """
    bailingmoe3 deepseek4 falcon-h1 glm5-next granitehybrid jamba kimi-k3 kimi-linear lfm2 lfm2moe mamba mamba2
    minimax-01 minimax-m3 nemotron_h nemotron_h_moe plamo2 qwen35 qwen35moe qwen3next qwen4exp""".split()
)
CHAINS = frozenset(  # of those without trees: chains are taken back by llama.cpp's rollback
    "bailingmoe3 kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 qwen35moe".split()
)
MEMORY = "keeps a memory that cannot verify drafts yet"


@dataclass(frozen=True)
class Fit:
    """problems: what keeps the two from being a pair; notes: what is worth knowing all the same."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the pair."""
        return not self.problems


def fit(head: HeadInfo, target: TargetSide) -> Fit:
    """Compares a head with a target; the problems that say most come first."""
    if target.is_draft:
        return Fit((f"{target.name} is itself a draft ({target.arch}): give the model that it drafts for",), ())
    vocabulary = list(_vocabulary(head, target))
    problems = [text for is_problem, text in vocabulary if is_problem]
    notes = [*head.notes, *(text for is_problem, text in vocabulary if not is_problem)]
    problems = [*problems, *_widths(head, target), *_layers(head, target), *_architecture(head, target), *head.problems]
    if head.context and target.n_ctx and head.context < target.n_ctx:
        notes.append(f"the draft knows contexts of {head.context} tokens, the target of {target.n_ctx}")
    return Fit(tuple(problems), tuple(notes))


def _vocabulary(head: HeadInfo, target: TargetSide) -> Iterator[tuple[bool, str]]:
    """Texts about the vocabularies, each with whether it is a problem."""
    sizes = (head.n_vocab, target.n_vocab)
    if None not in sizes and sizes[0] != sizes[1]:
        yield True, f"the draft is for a vocabulary of {sizes[0]} tokens, the target has {sizes[1]}"
        return
    if target.n_vocab is not None and head.map_end is not None and head.map_end > target.n_vocab:
        yield True, f"d2t maps to token {head.map_end - 1}, the target has {target.n_vocab} tokens"
    if target.vocabulary is None:
        yield False, "the target has no token list: compared by size only"
    elif head.vocabulary is not None:  # the head's own notes say when it has none
        yield from _tokens(head.vocabulary, target.vocabulary)


def _tokens(ours: Vocabulary, theirs: Vocabulary) -> Iterator[tuple[bool, str]]:
    if ours.kind != theirs.kind:
        yield True, f"the draft's tokenizer is {ours.kind or 'none'!r}, the target's {theirs.kind or 'none'!r}"
    found = differences(ours, theirs)
    if found is not None:
        i, special = found.first, "" if found.words else "special "
        text = f"token {i} is {_shown(ours.tokens[i])} for the draft and {_shown(theirs.tokens[i])} for the target"
        yield found.words > 0, f"{text} ({found.count} {special}tokens differ)"
    elif ours.kind == theirs.kind and ours.pre != theirs.pre:
        yield False, f"the tokens are equal, the rules that split text are not: {ours.pre!r} and {theirs.pre!r}"


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _widths(head: HeadInfo, target: TargetSide) -> Iterator[str]:
    if head.target_hidden is not None and head.target_hidden != target.n_embd:
        yield f"the draft reads features of {head.target_hidden} numbers, the target's have {target.n_embd}"
    elif head.shares and head.hidden is not None and head.hidden != target.n_embd:
        yield f"the draft shares the target's {head.shares[0]}, and is {head.hidden} wide instead of {target.n_embd}"


def _layers(head: HeadInfo, target: TargetSide) -> Iterator[str]:
    outside = [i for i in head.features if i != LAST_HIDDEN and not 0 <= i <= target.n_layer]
    if outside:
        yield f"the draft reads layer {outside[0]}, the target has {target.n_layer}"


def _architecture(head: HeadInfo, target: TargetSide) -> Iterator[str]:
    inner = [i for i in head.features if i != LAST_HIDDEN]
    lacks = target_limits(target.arch)
    if "text" in lacks:
        yield lacks["text"]
    elif inner and "features" in lacks:
        yield lacks["features"]
    elif target.n_layer in inner and "last output" in lacks:
        yield lacks["last output"]
    elif LAST_HIDDEN in head.features and "post norm" in lacks:
        yield lacks["post norm"]
    elif "trees" in lacks and target.arch not in CHAINS:
        yield f"{target.name} ({target.arch}) {MEMORY}: use --spec off"


def target_limits(arch: str) -> dict[str, str]:
    """What an architecture cannot do as a target: text, features, last output, post norm, trees, each in words."""
    told = {
        "text": (NO_TEXT, "cannot be a target"),
        "features": (NO_FEATURES, "does not give the inputs of its layers, which EAGLE-3 needs"),
        "last output": (NO_LAST_OUTPUT, "does not give the output of its last layer"),
        "post norm": (NO_POST_NORM, "does not give its last hidden state, which EAGLE-1 and EAGLE-2 need"),
        "trees": (NO_TREES, "verifies chains only" if arch in CHAINS else MEMORY),
    }
    return {
        key: f"architecture {arch} {text} (docs/targets.md)" for key, (names, text) in told.items() if arch in names
    }
