"""A conversation, shown piece by piece: python examples/chat.py [TARGET DRAFT]"""

import sys

from llama_eagle import Engine, SamplingParams


def main(*files: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=48)
    messages = []
    with Engine(*files) as engine:
        for question in ("Why is the sky blue?", "And at sunset?"):
            messages.append({"role": "user", "content": question})
            print(f"> {question}")
            for piece in engine.chat(messages, params):
                print(piece.text, end="", flush=True)
            messages.append({"role": "assistant", "content": engine.result.text})  # its cells are used again
            spec, timings = engine.result.spec, engine.result.timings
            print(f"\n({spec.emitted} tokens in {spec.steps} steps, {timings.tokens_per_s:.0f} tokens a second)")


if __name__ == "__main__":
    main(*sys.argv[1:])
