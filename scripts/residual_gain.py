"""Tokens a step of both acceptance rules on chains: `residual_gain.py [--length 3] [-n TOKENS] [--temps 0.6,1.0]`.

match: the draft's best tokens, accepted where the target draws them. residual: tokens drawn from the draft at the
target's temperature, accepted by rejection sampling. Both after llama.cpp's default filters, on the embedded pair.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from llama_eagle import Batch, DraftTree, Engine, SamplingParams, Uniforms
from llama_eagle.acceptance import Path, accept
from llama_eagle.distribution import distribution
from llama_eagle.residual import accept_residual, chooser, draw_children

PROMPTS = [
    "Why is the sky blue?",
    "Tell me a story about a fox.",
    "Explain how a bicycle stays upright.",
    "Write a poem.",
]


class Chains:
    """Chains on the contexts of an engine, grown and accepted by one rule."""

    def __init__(self, engine: Engine, params: SamplingParams, length: int, drawn: bool) -> None:
        self.target, self.params, self.length, self.drawn = engine.pair.target, params, length, drawn
        assert engine.pair.drafter is not None
        self.draft = engine.pair.drafter.context
        self.stream = Uniforms(params.seed or 0)
        self.decide = chooser(self.stream)
        ids = self.draft.model.draft_map()
        self.ids = np.arange(self.target.model.info.n_vocab) if ids is None else ids

    def steps(self, tokens: list[int], count: int) -> Iterator[Path]:
        """Paths until `count` tokens were emitted."""
        self.target.clear()
        self.draft.clear()
        self.target.decode(Batch(tokens))
        root = self.decide(distribution(self.target.logits()[-1], self.params))
        g = self.draft.encode(self.target.features())
        pairs, emitted = [*tokens[1:], root], 1
        while emitted < count:
            self.draft.decode(Batch(pairs, embd=g))
            tree, laws = self._grow(root)
            self.target.decode(Batch(tree))
            path = self._accept(tree, laws)
            features = self.target.features(list(path.rows))
            self.target.commit(path)
            yield path
            g, root = self.draft.encode(features), path.next
            pairs = [*path.tokens, root]
            emitted += len(pairs)

    def _grow(self, root: int) -> tuple[DraftTree, list[np.ndarray]]:
        past = self.draft.n_past()
        tokens: list[int] = []
        laws: list[np.ndarray] = []
        while True:
            law = np.zeros(self.target.model.info.n_vocab)
            law[self.ids] = distribution(self.draft.logits()[-1], self.params)
            laws.append(law)
            if len(tokens) == self.length:
                break
            tokens.append(draw_children(law, 1, self.decide)[0] if self.drawn else int(law.argmax()))
            self.draft.decode(Batch(tokens[-1:], embd=self.draft.hidden()[-1:]))
        self.draft.seq_rm(0, past)
        return DraftTree.from_lists(root, tokens, list(range(-1, self.length - 1))), laws

    def _accept(self, tree: DraftTree, laws: list[np.ndarray]) -> Path:
        rows = self.target.logits()
        if not self.drawn:
            return accept(tree, rows, self.params, self.stream)
        return accept_residual(
            tree, np.stack([distribution(r, self.params) for r in rows]), np.stack(laws), self.decide
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=3)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--temps", default="0.6,1.0")
    args = parser.parse_args()
    with Engine(spec="chain", n_ctx=1024) as engine:
        for temperature in map(float, args.temps.split(",")):
            for drawn in (False, True):
                lengths = []
                for seed, question in enumerate(PROMPTS):
                    text = engine.template.render([{"role": "user", "content": question}], add_generation_prompt=True)
                    tokens = engine.pair.model.tokenize(text, add_special=False, parse_special=True)
                    chains = Chains(engine, SamplingParams(temperature=temperature, seed=seed), args.length, drawn)
                    lengths += [len(path.tokens) + 1 for path in chains.steps(tokens, args.n)]
                rule = "residual" if drawn else "match"
                print(
                    f"T = {temperature}, {rule:8}: {np.mean(lengths):.2f} tokens a step over {len(lengths)} steps",
                    flush=True,
                )


if __name__ == "__main__":
    main()
