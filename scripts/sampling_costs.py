"""What choosing a token costs: `sampling_costs.py [-m TARGET.gguf] [-n TOKENS]`.

Prints microseconds of processor time per emitted token, the median over the positions of one text: of the argmax, of
the sampler at its defaults and with single settings, and of grammars over the states of an answer that they allowed.
"""

import argparse
import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Model, Sampler, SamplingParams
from llama_eagle.embedded import target_path
from llama_eagle.ffi import C, ffi

JSON = r"""
root   ::= value
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? ws "}"
array  ::= "[" ws ( value ("," ws value)* )? ws "]"
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})?
ws     ::= | " " | "\n" [ \t]{0,20}
"""
CHOICE = 'root ::= ("yes" | "no" | "maybe") "." '
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults (top-k 40, top-p 0.95, min-p 0.05)": {},
    "with penalties": {"repeat_penalty": 1.1},
    "temperature alone": OFF,
    "top-p 0.95 alone": {**OFF, "top_p": 0.95},
    "JSON grammar": {"grammar": JSON},
    "JSON grammar, temperature 0": {"grammar": JSON, "temperature": 0.0},
    "JSON grammar, top-k off": {"grammar": JSON, "top_k": 0},
    "a schema of two fields": {
        "json_schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
        }
    },
    "yes, no or maybe": {"grammar": CHOICE},
}


def microseconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Processor time of this thread, the median of some runs."""
    times = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        action()
        times.append((time.thread_time_ns() - start) / 1e3)
    return median(times)


def positions(context: Context, tokens: list[int], params: SamplingParams, count: int) -> list[float]:
    """The cost at each position of a text that these parameters write behind a prompt."""
    context.clear()
    context.decode(Batch(tokens))
    n_vocab = context.model.info.n_vocab
    ids, left = ffi.new("int32_t[]", n_vocab), ffi.new("float[]", n_vocab)
    costs = []
    with Sampler(context.model, params) as sampler:
        sampler.prompt(tokens)
        for _ in range(count):
            row = ffi.from_buffer("float[]", np.array(context.logits()[-1]))
            costs.append(microseconds(lambda row=row: C.eagle_sampler_candidates(sampler.handle, row, ids, left)))
            token = sampler.sample(context)
            if context.model.is_eog(token):
                break
            context.decode(Batch([token]))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default=None)
    parser.add_argument("-n", type=int, default=48)
    args = parser.parse_args()
    model = Model(args.model or target_path())
    prompt = model.tokenize("A person as JSON, with name and age, and whether that is right:\n")
    with Context(model, n_ctx=1024) as context:
        context.decode(Batch(prompt))
        print(f"{model.path.name}: {model.info.n_vocab} tokens; microseconds of processor time per emitted token")
        print(f"{'argmax':45}{microseconds(context.argmax, 50):8.0f}")
        for name, settings in SETTINGS.items():
            costs = positions(context, prompt, SamplingParams(seed=1, **settings), args.n)
            print(f"{name:45}{median(costs):6.0f} median{mean(costs):6.0f} mean{max(costs):7.0f} most ({len(costs)})")


if __name__ == "__main__":
    main()
