"""Many prompts, eight at a time in one batch: python examples/batch.py [TARGET DRAFT]"""

import sys

from llama_eagle import EagleError, Engine, SamplingParams


def main(*files: str) -> None:
    params = SamplingParams(seed=1, max_tokens=24)
    with Engine(*files, n_parallel=8, n_ctx=4096) as engine:  # sequences share the context
        requests = [engine.submit(f"The number {number} is", params) for number in range(20)]
        for request in requests:
            try:
                result = request.wait()  # runs all of them
            except EagleError as error:  # of this one; the others go on
                print(f"error: {error}")
            else:
                print(f"{result.completion_tokens:3d} tokens, {result.spec.accepted:3d} drafted: {result.text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
