"""The examples of the documentation, run on tiny models: the loop by hand in the terms of llama.h, and the Engine."""

from pathlib import Path

import numpy as np
import pytest

from llama_eagle import Batch, Context, Engine, Model, SamplingParams, accept, grow
from tiny import TinyPair

pytestmark = pytest.mark.native


def plain_tokens(path: Path, tokens: list[int], count: int) -> list[int]:
    """Greedy decoding, one token at a time."""
    with Model(path) as model, Context(model, n_ctx=512) as context:
        context.decode(Batch(tokens))
        res = [int(context.argmax()[-1])]
        while len(res) < count:
            context.decode(Batch(res[-1:]))
            res.append(int(context.argmax()[-1]))
        return res


def test_the_loop_by_hand(tiny_good_pair: TinyPair) -> None:
    model = Model(tiny_good_pair.target.path)
    target = Context(model, features=(2, 3, 5), n_ctx=512)
    draft = Context(Model(tiny_good_pair.path, target=model), n_ctx=1024)
    tokens = model.tokenize("Once upon a time")

    target.decode(Batch(tokens))  # llama_decode
    g = draft.encode(target.features())  # llama_encode: the FC
    draft.decode(Batch(tokens[1:], embd=g[:-1]))  # feature i goes with token i + 1
    root = int(target.argmax()[-1])  # the token behind the prompt
    draft.decode(Batch([root], embd=g[-1:]))  # and the prompt's last feature
    made = [root]
    while len(made) < 60:
        tree = grow(draft, nodes=16)
        assert tree.root == made[-1]
        target.decode(Batch(tree))  # one pass over the whole tree
        path = accept(tree, target.logits())
        target.commit(path)
        draft.rollback()
        made += [*path.tokens, path.next]
        g = draft.encode(target.features(path.rows))  # the path's true features
        draft.decode(Batch([*path.tokens, path.next], embd=g))
        assert draft.n_past() == target.n_past() == target.cells_used()

    assert made[:60] == plain_tokens(tiny_good_pair.target.path, tokens, 60)
    assert target.stats().n_decode < 45


def test_the_loop_by_hand_as_a_chain(tiny_good_pair: TinyPair) -> None:
    model = Model(tiny_good_pair.target.path)
    target = Context(model, features=(2, 3, 5), n_ctx=512)
    draft = Context(Model(tiny_good_pair.path, target=model), n_ctx=1024)
    tokens = model.tokenize("hello")
    target.decode(Batch(tokens))
    made = [int(target.argmax()[-1])]
    draft.decode(Batch([*tokens[1:], made[0]], embd=draft.encode(target.features())))
    while len(made) < 30:
        tree = grow(draft, nodes=4, depth=4, top_k=1)
        assert tree.parents.tolist() == [-1, 0, 1, 2]
        target.decode(Batch(tree))
        path = accept(tree, target.logits())
        target.commit(path)
        draft.rollback()
        made += [*path.tokens, path.next]
        rows = np.array(path.rows)
        draft.decode(Batch([*path.tokens, path.next], embd=draft.encode(target.features(rows))))
    assert made[:30] == plain_tokens(tiny_good_pair.target.path, tokens, 30)


@pytest.mark.parametrize("spec", ["tree", "chain", "off", "auto"])
def test_the_engine(tiny_good_pair: TinyPair, spec: str) -> None:
    target = tiny_good_pair.target.path
    with Engine(target, draft=tiny_good_pair.path, n_ctx=512, gpu_layers="auto", spec=spec, n_threads=1) as engine:
        params = SamplingParams(temperature=0, seed=7, max_tokens=40, ignore_eos=True)
        pieces = list(engine.chat([{"role": "user", "content": "Why is the sky blue?"}], params))
        tokens = [t for piece in pieces for t in piece.tokens]
        assert len(tokens) == 40
        assert "".join(piece.text for piece in pieces) == engine.result.text
        assert all(len(piece.tokens) == len(piece.from_draft) for piece in pieces)
        assert any(flag for piece in pieces for flag in piece.from_draft) == (engine.result.spec.mode != "off")

        result = engine.generate("Once upon a time", params)
        prompt = engine.pair.model.tokenize("Once upon a time")
        assert result.tokens == plain_tokens(target, prompt, 40)
        assert (result.completion_tokens, result.prompt_tokens, result.finish_reason) == (40, len(prompt), "length")
