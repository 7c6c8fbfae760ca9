"""chain.py: on targets with recurrent layers a chain is decoded and taken back to any length, and what follows is what
a context says that never saw the rest.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybrids import LENGTH, ROLLBACK, TOLERANCE, check_goes_on, error, expected, open_context, words
from llama_eagle import Batch, Context, DraftTree, InputError, Model, accept, grow
from llama_eagle.chain import decode_chain, keep_chain, rollback_memory
from llama_eagle.errors import NativeError
from loops import EXACT
from tiny import TinyTarget, eagle3_shape, random_draft
from tiny.hybrid import write_hybrid

pytestmark = pytest.mark.native

Hybrid = Callable[[str], Model]


@pytest.mark.parametrize("name", ROLLBACK)
def test_every_accepted_length_goes_on_as_its_text_alone(name: str, hybrid: Hybrid) -> None:
    rng, model = np.random.default_rng(1), hybrid(name)
    for accepted in range(LENGTH + 1):
        with open_context(model) as context:
            text, chain = words(rng, 11), words(rng, 1 + LENGTH)
            context.decode(Batch(text))
            decode_chain(context, chain)
            want = expected(model, text + chain)
            assert error(context.logits(), want[-len(chain) :]) < TOLERANCE
            assert error(context.logits(), want[-len(chain) - 1 : -1]) > 0.1  # rows mixed up would show
            keep_chain(context, len(text) + 1 + accepted)
            check_goes_on(context, 0, text + chain[: 1 + accepted])


@pytest.mark.parametrize("name", ROLLBACK)
def test_what_was_taken_back_would_show(name: str, hybrid: Hybrid) -> None:
    rng, model = np.random.default_rng(2), hybrid(name)
    text, chain = words(rng, 11), words(rng, 1 + LENGTH)
    right, wrong = (expected(model, [*text, *chain[:n], 7])[-1] for n in (2, 3))
    assert error(wrong, right) > 0.01


@pytest.mark.parametrize("name", ROLLBACK)
@pytest.mark.parametrize("unified", [True, False])
def test_many_rounds_of_several_sequences_at_once(name: str, unified: bool, hybrid: Hybrid) -> None:
    """Chains of one length share a decode, sometimes with a longer prompt; some rounds leave sequences out."""
    rng, model = np.random.default_rng(3), hybrid(name)
    texts = {s: words(rng, 5 + 4 * s) for s in (0, 1, 3)}
    with open_context(model, kv_unified=unified, n_ctx=256 if unified else 1024) as context:
        context.decode(Batch.join([Batch(text, seq_id=s) for s, text in texts.items()]))
        for _ in range(12):
            turn = [s for s in rng.permutation([0, 1, 3]).tolist() if rng.random() < 0.8]
            length = int(rng.integers(1, LENGTH + 2))
            chains = {s: words(rng, length) for s in (turn if unified else turn[:1])}
            if len(chains) > 1 and rng.random() < 0.3:
                chains[turn[0]] += words(rng, LENGTH + 3)
            if chains:
                round_of(context, model, texts, chains, rng)
        for seq_id, text in texts.items():
            check_goes_on(context, seq_id, text)


def round_of(
    context: Context, model: Model, texts: dict[int, list[int]], chains: dict[int, list[int]], rng: np.random.Generator
) -> None:
    """Decodes chains together, checks their logits, keeps a random part of each."""
    batches = [Batch(chain, seq_id=s, outputs=[1] * len(chain)) for s, chain in chains.items()]
    context.decode(Batch.join(batches))
    rows = iter(context.logits())
    for seq_id, chain in chains.items():
        want = expected(model, texts[seq_id] + chain)[-len(chain) :]
        assert error(np.stack([next(rows) for _ in chain]), want) < TOLERANCE
        kept = chain[: int(rng.integers(max(1, len(chain) - LENGTH), len(chain) + 1))]
        texts[seq_id] += kept
        keep_chain(context, len(texts[seq_id]), seq_id)


def test_a_window_is_still_there_behind_a_chain(hybrid: Hybrid) -> None:
    """Longer than the window cache, so that its cells are used again."""
    rng, model = np.random.default_rng(4), hybrid("lfm2 with windows")
    text = words(rng, 400)
    with open_context(model, n_ctx=1024, n_seq_max=1, n_ubatch=32) as context:
        context.decode(Batch(text))
        for accepted in (0, 2, 1, LENGTH, 0):
            chain = words(rng, 1 + LENGTH)
            decode_chain(context, chain)
            text += chain[: 1 + accepted]
            keep_chain(context, len(text))
        check_goes_on(context, 0, text, n_ctx=1024, n_seq_max=1, n_ubatch=32)


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "nemotron_h"])
def test_the_features_of_a_chain_are_those_of_its_text(name: str, hybrid: Hybrid) -> None:
    rng, model = np.random.default_rng(5), hybrid(name)
    texts, chains = (words(rng, 6), words(rng, 9)), (words(rng, 4), words(rng, 4))
    layers = tuple(range(model.info.n_layer + 1))
    with Context(model, layers, n_ctx=256, n_rollback=LENGTH, n_seq_max=2, **EXACT) as context:
        context.decode(Batch.join([Batch(text, seq_id=s) for s, text in enumerate(texts)]))
        for _ in range(3):
            context.decode(Batch.join([Batch(chain, seq_id=s) for s, chain in enumerate(chains)]))
            got = context.features()
            for s, text in enumerate(texts):
                keep_chain(context, len(text) + 1, s)
            for s, (text, chain) in enumerate(zip(texts, chains, strict=True)):
                rows = got[: len(chain)] if s == 0 else got[-len(chain) :]
                want = features(model, layers, text + chain)[-len(chain) :]
                assert error(rows, want) < TOLERANCE < 0.1 < error(rows, np.roll(want, 1, axis=0))
                text.append(chain[0])


def features(model: Model, layers: tuple[int, ...], tokens: list[int]) -> np.ndarray:
    with Context(model, layers, n_ctx=256, n_rollback=LENGTH, **EXACT) as context:
        context.decode(Batch(tokens))
        return context.features()


def plain_text(model: Model, prompt: list[int], count: int) -> list[int]:
    with open_context(model) as context:
        said: list[int] = []
        while len(said) < count:
            context.decode(Batch(said[-1:] or prompt))
            said.append(int(context.argmax()[-1]))
    return said


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "nemotron_h"])
def test_a_text_with_drafts_is_the_plain_one(name: str, hybrid: Hybrid, tmp_path: Path) -> None:
    """The loop by hand: a head's chains, and those of an oracle, right up to a known depth."""
    model, limit = hybrid(name), 40
    path = random_draft(eagle3_shape(n_vocab=model.info.n_vocab, features=(0, 1, 3))).write(tmp_path / "head.gguf")
    head, prompt = Model(path, target=model), list(range(20, 31))
    said = plain_text(model, prompt, limit + LENGTH + 2)
    accepted = []
    with (
        Context(model, head.info.features, n_ctx=256, n_rollback=LENGTH, **EXACT) as target,
        open_context(head) as draft,
    ):
        target.decode(Batch(prompt))
        new, text = prompt, [int(target.argmax()[-1])]
        rows = target.features()
        while len(text) < limit:
            draft.decode(Batch([*new[1:], text[-1]] if new is prompt else [*new, text[-1]], embd=draft.encode(rows)))
            tree = grow(draft, nodes=LENGTH, depth=LENGTH, top_k=1)
            draft.rollback()
            right = len(accepted) % (LENGTH + 2)
            if right <= LENGTH:  # every sixth one stays the head's
                tokens = [t if i < right else (t + 1) % 250 for i, t in enumerate(said[len(text) : len(text) + LENGTH])]
                tree = DraftTree.from_lists(text[-1], tokens, range(-1, LENGTH - 1))
            decode_chain(target, [tree.root, *tree.tokens])
            way = accept(tree, target.logits())
            rows = target.features([0, *(node + 1 for node in way.nodes)])
            keep_chain(target, len(prompt) + len(text) + len(way.nodes))
            new = list(way.tokens)
            text += [*way.tokens, way.next]
            accepted.append(len(way.nodes))
    assert text == said[: len(text)]
    assert set(accepted) >= set(range(LENGTH + 1))


@pytest.mark.parametrize("name", ["jamba", "qwen3next"])
def test_without_rollback_a_chain_is_refused_by_name(name: str, hybrid: Hybrid) -> None:
    with open_context(hybrid(name)) as context:
        assert context.n_rollback == 0
        assert "no rollback" in rollback_memory(context)
        context.decode(Batch([5, 6, 7]))
        with pytest.raises(InputError, match=f"architecture {name} cannot take decoded tokens back.*--spec off"):
            decode_chain(context, [8, 9])
        decode_chain(context, [8])  # a root alone is a plain step
        check_goes_on(context, 0, [5, 6, 7, 8])


def test_chains_that_are_too_long(hybrid: Hybrid) -> None:
    with open_context(hybrid("lfm2")) as context:
        context.decode(Batch([5, 6]))
        with pytest.raises(InputError, match=r"5 tokens behind the root.*at most 4"):
            decode_chain(context, [7] * 6)
        with pytest.raises(InputError, match="the root at least"):
            decode_chain(context, [])
        check_goes_on(context, 0, [5, 6])
    with pytest.raises(NativeError, match="n_ubatch of at least n_rollback \\+ 2, got 5"):
        open_context(hybrid("lfm2"), n_ubatch=5)
    with pytest.raises(InputError, match="n_rollback"):
        open_context(hybrid("lfm2"), n_rollback=-1)
    with open_context(hybrid("lfm2"), n_ubatch=6) as context:
        context.decode(Batch(list(range(5, 30))))
        decode_chain(context, [7, 8, 9, 10, 11])
        keep_chain(context, 26)
        check_goes_on(context, 0, [*range(5, 30), 7])


def test_attention_cells_go_with_the_state(hybrid: Hybrid) -> None:
    with open_context(hybrid("qwen35")) as context:
        context.decode(Batch([5, 6, 7]))
        decode_chain(context, [8, 9, 10, 11])
        assert context.cells_used() == 7
        keep_chain(context, 5)
        assert context.cells_used() == 5
        context.seq_rm(0, 0)
        assert context.cells_used() == 0


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_memories_without_a_state_take_chains_too(arch: str, tiny_target: Callable[..., TinyTarget]) -> None:
    rng, model = np.random.default_rng(6), Model(tiny_target(arch).path)
    text = words(rng, 30)
    with open_context(model) as context:
        assert context.n_rollback == LENGTH
        assert rollback_memory(context) == ""
        context.decode(Batch(text))
        for accepted in (0, 3, 1, LENGTH):
            chain = words(rng, 1 + LENGTH)
            decode_chain(context, chain)
            text += chain[: 1 + accepted]
            keep_chain(context, len(text))
        check_goes_on(context, 0, text)
    with open_context(model, n_rollback=0) as context, pytest.raises(InputError, match="n_rollback of at least"):
        decode_chain(context, [5, 6])


def test_what_rollback_costs_is_said(hybrid: Hybrid) -> None:
    sizes = {}
    for length in (0, 2):
        with open_context(hybrid("qwen35"), n_rollback=length, n_seq_max=2) as context:
            sizes[length] = context.state_bytes, context.snapshot_bytes
            said = rollback_memory(context)
    # two recurrent layers: 4 heads of 16 x 16, and 3 columns of 128 channels for the convolution
    one = 2 * 2 * 4 * (4 * 16 * 16 + 3 * 128)
    assert sizes == {0: (one, one), 2: (3 * one, one)}
    mib = one / (1 << 20)
    chains = f"{2 * mib:.3g} of it to take back chains of 2 ({mib:.3g} a token)"
    assert said == f"qwen35: recurrent state of 2 sequences {3 * mib:.3g} MiB, {chains}"


def test_a_file_of_the_writer_is_the_same_each_time(tmp_path: Path) -> None:
    one, two = (write_hybrid(tmp_path / name, "lfm2").path.read_bytes() for name in ("a.gguf", "b.gguf"))
    assert one == two
