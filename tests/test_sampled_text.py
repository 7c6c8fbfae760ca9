"""Sampled texts: the same seed gives the same text whatever is drafted, in the target's distribution and grammar."""

import json
import re
from typing import Any

import numpy as np
import pytest

from chi_square import assert_fits
from llama_eagle import Batch, Context, DraftTree, Engine, InputError, SamplingParams, TreeShape
from llama_eagle.acceptance import accept
from llama_eagle.embedded import target_file
from llama_eagle.generate import Loop
from llama_eagle.sampler import Sampler
from llama_eagle.step_calls import verify
from llama_eagle.uniforms import Uniforms
from loops import EXACT, SHAPES, Loaded, check_draft, load, prompt, text
from tiny import TinyPair

pytestmark = pytest.mark.native

JSON = r"""
root   ::= object
object ::= "{" ( pair ("," pair){0,3} )? "}"
pair   ::= string ":" value
value  ::= object | string | [0-9]{1,4} | "true" | "null"
string ::= "\"" ( [^"\\\x00-\x1f\x7f] | "\\" ["\\/bfnrt] ){0,12} "\""
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1},
    "hot": {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "typical": {"typical_p": 0.8, "temperature": 1.0},
    "grammar": {"grammar": "root ::= [a-z]*", "temperature": 1.0, "repeat_penalty": 1.1},
    "bias": {"logit_bias": {101: 2.0, 116: float("-inf")}},
}


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", ["tree16", "tree40", "wide", "chain4", "chain12"])
def test_the_same_seed_gives_the_same_text(good: Loaded, shape: str, setting: str) -> None:
    loop, plain = good.loop(SHAPES[shape]), good.plain()
    for seed in range(4):
        params = SamplingParams(seed=seed, **SETTINGS[setting])
        steps = [run(which, prompt(20, seed), params, 50) for which in (loop, plain)]
        assert text(steps[0]) == text(steps[1])
    check_draft(loop)


def run(loop: Any, tokens: list[int], params: SamplingParams, limit: int) -> list[Any]:
    """Steps up to an end token; the sampler was asked for the emitted tokens and no others, step by step."""
    with Sampler(loop.target.model, params) as sampler:
        steps = []
        for step in loop.steps(loop.start(tokens, sampler), limit):
            steps.append(step)
            assert sampler.draws == sampler.emitted == len(text(steps))
            if any(loop.target.model.is_eog(token) for token in step.tokens):
                assert not any(loop.target.model.is_eog(token) for token in step.tokens[:-1])
                break
    return steps


def test_drafts_are_accepted(good: Loaded) -> None:
    """Otherwise the equality above would say little."""
    steps = run(good.loop(SHAPES["tree16"]), prompt(20), SamplingParams(seed=1, ignore_eos=True), 60)
    assert sum(step.accepted for step in steps) > 15


def test_verify_is_the_definition(good: Loaded) -> None:
    """The native walk against accept() in numpy, with the same numbers."""
    params = SamplingParams(seed=5, temperature=1.2)
    with Context(good.model, (1,), n_ctx=256, **EXACT) as target, Sampler(good.model, params) as sampler:
        target.decode(Batch(prompt(20)))
        stream, lengths, root = Uniforms(5), [], 60
        for _ in range(30):
            target.decode(Batch([root]))
            guess = [int(t) for t in np.argsort(-target.logits()[-1])[:3]]
            target.seq_rm(0, target.n_past() - 1)
            tree = DraftTree.from_lists(root, [*guess, *guess], [-1, -1, -1, 0, 0, 1])
            target.decode(Batch(tree))
            rows = target.logits()
            expected = accept(tree, rows, params, stream)
            target.rollback()
            target.seq_rm(0, target.n_past() - 1)
            path = verify(target, tree, sampler)
            assert path == expected
            assert stream.index == sampler.draws
            lengths.append(len(path.nodes))
            root = path.next
    assert len(set(lengths)) > 1


FILTERS: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "top_k": 6, "min_p": 0.0}


def second_token(plain: Context, tokens: list[int]) -> np.ndarray:
    """float64 [n_vocab]: the distribution of the second token behind a prompt, by summation over the first."""
    out = np.zeros(plain.model.info.n_vocab)
    with Sampler(plain.model, SamplingParams(**FILTERS)) as sampler:
        plain.decode(Batch(tokens))
        first = sampler.distribution(plain.logits()[-1])
        for token in np.flatnonzero(first):
            plain.decode(Batch([int(token)]))
            out += first[token] * sampler.distribution(plain.logits()[-1])
            plain.seq_rm(0, len(tokens))
    return out


def check_second_token(loop: Loop, tokens: list[int], probabilities: np.ndarray, n: int) -> int:
    """Chi-square over n seeds, the second token drawn in the verification of a tree; how many drafts were accepted."""
    expected, counts, accepted = probabilities * n, np.zeros_like(probabilities), 0
    slot = loop.slots[0]
    for seed in range(n):
        with Sampler(loop.target.model, SamplingParams(seed=seed, **FILTERS)) as sampler:
            sampler.prompt(tokens)
            loop.begin(slot, tokens, sampler, limit=3)
            loop.prefill(slot)
            step = loop.step([slot])[0]
        counts[step.tokens[0]] += 1
        accepted += step.accepted
    assert_fits(counts, expected)
    return accepted


def test_the_second_token_has_the_targets_distribution(good: Loaded) -> None:
    """T = 1 with top-p."""
    with Context(good.model, n_ctx=256, **EXACT) as plain:
        probabilities = second_token(plain, prompt(20))
    assert check_second_token(good.loop(TreeShape(10, 1, 10)), prompt(20), probabilities, 1500) > 1500 / 12


@pytest.mark.parametrize("spec", ["tree", "chain", "off"])
def test_grammar_answers_always_parse(tiny_good_pair: TinyPair, spec: str) -> None:
    target, head = tiny_good_pair.target.path, tiny_good_pair.path
    ended = 0
    with Engine(target, head, n_ctx=1024, spec=spec, n_threads=1) as engine:
        for seed in range(15):
            params = SamplingParams(seed=seed, temperature=1.5, grammar=JSON, max_tokens=900, repeat_penalty=1.1)
            result = engine.generate("An object:", params)
            if result.finish_reason == "stop":
                assert isinstance(json.loads(result.text), dict)
                assert engine.pair.model.is_eog(result.tokens[-1])
                ended += 1
            params = SamplingParams(seed=seed, temperature=2.0, grammar='root ::= "<" [a-c]{2,9} ">"')
            result = engine.generate("Letters:", params)
            assert result.finish_reason == "stop"
            assert re.fullmatch("<[a-c]{2,9}>", result.text)
        assert ended > 5
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        result = engine.generate("A number:", SamplingParams(seed=1, json_schema=schema, max_tokens=900))
        assert isinstance(json.loads(result.text)["n"], int)


def test_an_answer_that_cannot_go_on_is_an_error_and_the_next_one_is_fine(tiny_good_pair: TinyPair) -> None:
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=256, spec="tree", n_threads=1) as engine:
        good = SamplingParams(seed=1, max_tokens=20, ignore_eos=True)
        before = engine.generate("Once upon", good).tokens
        ends = {token: float("-inf") for token in range(272) if engine.pair.model.is_eog(token)}
        for count in (1, 2, 9):
            stuck = SamplingParams(seed=1, grammar=f"root ::= [a-z]{{{count}}}", logit_bias=ends)
            with pytest.raises(InputError, match="no token can follow"):
                engine.generate("Once upon", stuck)
            assert engine.generate("Once upon", good).tokens == before


def test_bad_grammars_are_refused_before_the_prompt_is_decoded(tiny_good_pair: TinyPair) -> None:
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=256, spec="tree", n_threads=1) as engine:
        with pytest.raises(InputError, match="no rule named root"):
            engine.stream("Once upon", SamplingParams(grammar='x ::= "a"'))
        assert engine.loop.target.n_past() == 0


def test_engine_reports_the_seed_it_drew(tiny_good_pair: TinyPair) -> None:
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=256, spec="tree", n_threads=1) as engine:
        drawn = engine.generate("Once", SamplingParams(temperature=1.5, max_tokens=30, ignore_eos=True))
        again = engine.generate(
            "Once", SamplingParams(temperature=1.5, max_tokens=30, ignore_eos=True, seed=drawn.seed)
        )
        other = engine.generate("Once", SamplingParams(temperature=1.5, max_tokens=30, ignore_eos=True))
        assert drawn.tokens == again.tokens != other.tokens
        assert drawn.seed == again.seed == again.settings["seed"] != other.seed


@pytest.fixture
def embedded() -> None:
    """Skips where the embedded target was never fetched."""
    if not target_file().is_file():
        pytest.skip(f"the embedded target is not at {target_file()}: `llama-eagle run` fetches it")


def test_the_embedded_pair_keeps_the_distribution(embedded: None) -> None:
    """T = 1 with top-p, over 300 seeds."""
    with Engine(spec="tree", draft_nodes=4, n_ctx=512) as engine:
        tokens = engine.pair.model.tokenize("The old man opened the door and")
        with Context(engine.pair.model, n_ctx=512) as plain:
            probabilities = second_token(plain, tokens)
        assert check_second_token(engine.loop, tokens, probabilities, 300) > 30


def test_the_embedded_pair(embedded: None) -> None:
    """T = 0.8 with penalties: trees, chains and plain decoding write the same text."""
    texts = {}
    for spec in ("tree", "chain", "off"):
        with Engine(spec=spec, n_ctx=512) as engine:
            params = [SamplingParams(seed=seed, repeat_penalty=1.1, max_tokens=40) for seed in (1, 2)]
            message = [{"role": "user", "content": "Tell me a story about a fox."}]
            results = []
            for p in params:
                for _ in engine.chat(message, p):
                    pass
                results.append(engine.result)
            texts[spec] = [result.tokens for result in results]
            assert (sum(result.spec.accepted for result in results) > 10) == (spec != "off")
    assert texts["tree"] == texts["chain"] == texts["off"]
    assert texts["off"][0] != texts["off"][1]
