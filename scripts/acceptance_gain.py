"""Tokens a step of both acceptance rules: `acceptance_gain.py [--prompts FILE.jsonl] [--limit 10] [-n TOKENS]`.

Sampled texts of the embedded pair with llama.cpp's default filters, in chains and in trees. It counts and times
nothing, so all prompts run at once.
"""

import argparse
from itertools import product

from llama_eagle import Engine, SamplingParams
from llama_eagle.bench.prompts import prompt_sets
from llama_eagle.engine import Message

SHAPES = {"chain of 4": {"spec": "chain", "draft_max": 4}, "tree of 16": {"spec": "tree", "draft_nodes": 16}}
RULES = ("match", "residual")


def tokens_per_step(engine: Engine, texts: list[str], params: list[SamplingParams]) -> float:
    """The mean over all steps of all answers."""
    requests = []
    for text, how in zip(texts, params, strict=True):
        message: Message = {"role": "user", "content": text}
        prompt = engine.template.render([message], add_generation_prompt=True)
        tokens = engine.pair.model.tokenize(prompt, add_special=False, parse_special=True)
        requests.append(engine.submit(tokens, how))
    found = [request.wait().spec for request in requests]
    engine.forget()
    return 1 + sum(spec.accepted for spec in found) / sum(spec.steps for spec in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompts", action="append", default=[])
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--temps", default="0.6,1.0")
    args = parser.parse_args()
    texts = [prompt.text for one in prompt_sets(args.prompts, args.limit) for prompt in one.prompts]
    for shape, rule in product(SHAPES, RULES):
        options = {**SHAPES[shape], "n_ctx": 512 * len(texts), "n_parallel": len(texts)}
        with Engine(accept=rule, **options) as engine:
            for temperature in map(float, args.temps.split(",")):
                params = [SamplingParams(temperature=temperature, seed=i, max_tokens=args.n) for i in range(len(texts))]
                mean = tokens_per_step(engine, texts, params)
                print(f"T = {temperature}, {shape}, {rule:8}: {mean:.2f} tokens a step", flush=True)


if __name__ == "__main__":
    main()
