"""Several continuations of one text, decoded once where they agree: python examples/fork.py [TARGET DRAFT]"""

import sys

from llama_eagle import Engine, SamplingParams


def main(*files: str) -> None:
    with Engine(*files, n_parallel=4, n_ctx=2048) as engine:
        params = SamplingParams(temperature=1.0, seed=7, max_tokens=24)
        for result in engine.completions("Once upon a time", params, n=4):  # seeds 7, 8, 9 and 10
            print(f"seed {result.seed}: {result.text!r}")

        request = engine.submit("Once upon a time", params)
        while not request.done and len(request.result.tokens) < 12:
            engine.step()
        if not request.done:
            other = request.fork()  # the same so far, then with a seed of its own
            print(f"forked behind {request.result.text!r}")
            print(f"  {request.wait().text!r}\n  {other.wait().text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
