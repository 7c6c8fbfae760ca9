"""How sure the target was of each token, and of which others: python examples/logprobs.py [TARGET DRAFT]"""

import math
import sys

from llama_eagle import Engine, SamplingParams


def main(*files: str) -> None:
    with Engine(*files) as engine:
        result = engine.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=8, logprobs=3))
        piece = engine.pair.model.piece  # the bytes of a token
        for one in result.logprobs:
            others = ", ".join(f"{piece(token)!r} {math.exp(logprob):.3f}" for token, logprob in one.top)
            print(f"{piece(one.token)!r:12} {math.exp(one.logprob):.3f}   of {others}")
        mean = sum(one.logprob for one in result.logprobs) / len(result.logprobs)
        print(f"perplexity {math.exp(-mean):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
