"""The flags of `llama-eagle run`, of which `bench` takes some: names, values, defaults. Names are llama.cpp's, with
every alias it accepts.

Defaults repeat those of EngineOptions and SamplingParams, so that --help opens no native library; a test compares them.
"""

import argparse
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from .parser import Parser

_TRISTATE = {
    **dict.fromkeys(("on", "enabled", "true", "1"), "on"),
    **dict.fromkeys(("off", "disabled", "false", "0"), "off"),
    **dict.fromkeys(("auto", "-1"), "auto"),
}
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SPEC_MODES = ("auto", "tree", "static", "chain", "off")


@dataclass(frozen=True)
class Flag:
    """One flag. `shown` is how --help prints the default where the value itself does not say it."""

    names: str
    dest: str
    help: str
    default: Any = None
    shown: str = ""
    options: tuple[tuple[str, Any], ...] = (("metavar", "N"), ("type", int))

    def add_to(self, group: Any) -> None:
        """Adds the flag to an argparse group."""
        shown = self.shown or str(self.default)
        text = f"{self.help} (default: {shown})".replace("%", "%%")
        group.add_argument(*self.names.split(), dest=self.dest, help=text, default=self.default, **dict(self.options))


def tristate(value: str) -> str:
    """on, off or auto in any of llama.cpp's spellings."""
    if value not in _TRISTATE:
        raise argparse.ArgumentTypeError(f"must be on, off or auto, got {value!r}")
    return _TRISTATE[value]


def layers(value: str) -> int | str:
    """A number of layers, "auto", or "all" as -1."""
    if value in ("auto", "-1"):  # llama.cpp's own -1
        return "auto"
    if value in ("all", "-2"):
        return -1
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of layers, auto or all, got {value!r}")
    return int(value)


def threads(value: str) -> int:
    """A number of threads; 0 and less: all processors."""
    return max(int(value), 0)


threads.__name__ = "int"


def bias(value: str) -> tuple[int, float]:
    """A token id and what is added to its logit, as in 15043+1 or 15043-inf."""
    found = re.fullmatch(r"\s*(\d+)\s*([+-])\s*(\d*\.?\d+(?:e[+-]?\d+)?|inf)\s*", value, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a token id, + or - and a number, got {value!r}")
    return int(found[1]), float(found[2] + found[3])


def _takes(metavar: str, kind: Any = str) -> tuple[tuple[str, Any], ...]:
    return (("metavar", metavar), ("type", kind))


def _one_of(*values: str) -> tuple[tuple[str, Any], ...]:
    return (("metavar", "|".join(values)), ("choices", values))


_FILE, _TEXT, _REPO, _NUMBER = _takes("FILE"), _takes("TEXT"), _takes("REPO"), _takes("X", float)
_SWITCH = (("action", "store_true"),)

GROUPS: dict[str, tuple[Flag, ...]] = {
    "models": (
        Flag("-m --model", "model", "GGUF of the target", None, "the embedded pair", _FILE),
        Flag("-md --model-draft --spec-draft-model", "model_draft",
             "draft head: a GGUF, a checkpoint folder (converted once) or an id on the hub", None,
             "the embedded one for the embedded target, a known one for -hf, else none", _FILE),
        Flag("-hf -hfr --hf-repo", "hf", "target on the hub, fetched once; QUANT as in file names", None,
             "none; QUANT Q4_K_M, Q8_0 or the first", _takes("REPO[:QUANT]")),
        Flag("-hfd -hfrd --hf-repo-draft --spec-draft-hf", "hfd", "draft head on the hub, fetched and converted once",
             None, "as -md", _REPO),
        Flag("--offline", "offline", "never use the network", False, "off", _SWITCH),
    ),
    "text": (
        Flag("-p --prompt", "prompt", "the prompt; standard input is not read", None,
             "a pipe's text, or else a chat", _TEXT),
        Flag("-f --file", "file", "file with the prompt, - for standard input", None, "none", _FILE),
        Flag("-sys --system-prompt", "system", "system message", None, "none", _TEXT),
        Flag("--raw", "raw", "complete the text as it is, without the chat template", False, "off", _SWITCH),
        Flag("--chat-template-file", "template", "jinja chat template", None, "the model's own", _FILE),
        Flag("-st --single-turn", "single_turn", "leave the chat after one answer", False, "off", _SWITCH),
        Flag("-n --predict --n-predict", "max_tokens", "most tokens of an answer", -1,
             "-1, until the end token or a full context"),
        Flag("--stop", "stop", "text that ends the answer; repeatable", [], "none",
             (("action", "append"), ("metavar", "TEXT"))),
        Flag("--ignore-eos", "ignore_eos", "go on behind end tokens", False, "off", _SWITCH),
    ),
    "sampling": (
        Flag("--temp --temperature", "temperature", "temperature; 0: greedy", 0.8, "", _NUMBER),
        Flag("--top-k", "top_k", "keep the K most likely tokens; 0: all", 40, "", _takes("K", int)),
        Flag("--top-p", "top_p", "keep the most likely tokens of probability P; 1: all", 0.95, "", _takes("P", float)),
        Flag("--min-p", "min_p", "keep tokens of P times the best one's probability; 0: all", 0.05, "",
             _takes("P", float)),
        Flag("--typical --typical-p", "typical_p", "keep locally typical tokens of probability P; 1: all", 1.0, "",
             _takes("P", float)),
        Flag("--repeat-last-n", "repeat_last_n", "tokens that the penalties look back at; 0: none", 64),
        Flag("--repeat-penalty", "repeat_penalty", "divide logits of repeated tokens; 1: off", 1.0, "",
             _takes("R", float)),
        Flag("--presence-penalty", "presence_penalty", "subtract from logits of repeated tokens; 0: off", 0.0, "",
             _NUMBER),
        Flag("--frequency-penalty", "frequency_penalty", "the same for each time they occurred; 0: off", 0.0, "",
             _NUMBER),
        Flag("-l --logit-bias", "logit_bias", "add to a token's logit: 15043+1, 15043-1, 15043-inf; repeatable", [],
             "none", (("action", "append"), ("metavar", "ID(+/-)BIAS"), ("type", bias))),
        Flag("-s --seed", "seed", "seed of the random numbers", -1, "-1, a random one", _takes("SEED", int)),
        Flag("--grammar", "grammar", "GBNF grammar of the answer", None, "none", _TEXT),
        Flag("--grammar-file", "grammar_file", "file with the grammar", None, "none", _FILE),
        Flag("-j --json-schema", "json_schema", "JSON schema of the answer", None, "none", _takes("SCHEMA")),
        Flag("-jf --json-schema-file", "json_schema_file", "file with the schema", None, "none", _FILE),
    ),
    "speculation": (
        Flag("--spec", "spec", "draft: when it pays, trees, one shape, chains, never", None, "auto",
             _one_of(*SPEC_MODES)),
        Flag("--draft-nodes", "draft_nodes", "nodes of a tree", None, "16, auto 63", _takes("N", int)),
        Flag("--draft-depth", "draft_depth", "depth of a tree", None, "5, auto 8", _takes("D", int)),
        Flag("--draft-top-k", "draft_top_k", "children of a node", None, "4, auto 8", _takes("K", int)),
        Flag("--spec-draft-n-max", "draft_max", "length of a chain", 3),
        Flag("--draft-tree", "draft_tree",
             "static shape: children by level (4,2,2,1), eagle1 or a file; alone it means --spec static", None,
             "eagle1", _takes("SHAPE")),
        Flag("--no-calibrate", "calibrate", "measure no costs, begin with a guess", True, "off",
             (("action", "store_false"),)),
        Flag("--verify", "verify", "score a tree by tree attention, or each of its paths as a sequence", "tree", "",
             _one_of("tree", "paths")),
        Flag("--accept", "accept", "match: a draft that the target draws, too; residual: drawn drafts, by rejection",
             "match", "", _one_of("match", "residual")),
    ),
    "machine": (
        Flag("-c --ctx-size", "n_ctx", "context in tokens, rounded up to 256", 0, "0, what the model was trained with"),
        Flag("--context-shift", "context_shift", "a full context drops half of what is old and goes on", False, "off",
             _SWITCH),
        Flag("--keep", "keep", "tokens at the beginning that a context shift leaves", 0),
        Flag("-t --threads", "n_threads", "threads", 0, "0, all processors", _takes("N", threads)),
        Flag("-ngl --gpu-layers --n-gpu-layers", "gpu_layers", "layers on the GPU: a number, auto or all", "auto",
             "auto, what the free GPU memory holds", _takes("N", layers)),
        Flag("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", "gpu_layers_draft",
             "the same for the draft head", None, "as -ngl", _takes("N", layers)),
        Flag("-b --batch-size", "n_batch", "tokens of a batch", 2048),
        Flag("-ub --ubatch-size", "n_ubatch", "tokens computed at once", 512),
        Flag("-fa --flash-attn", "flash_attn", "flash attention", "auto", "", _takes("on|off|auto", tristate)),
        Flag("-ctk --cache-type-k", "type_k", f"type of cached keys: {', '.join(CACHE_TYPES)}", "f16", "",
             (("metavar", "TYPE"), ("choices", CACHE_TYPES))),
        Flag("-ctv --cache-type-v", "type_v", "type of cached values, likewise", "f16", "",
             (("metavar", "TYPE"), ("choices", CACHE_TYPES))),
    ),
    "output": (
        Flag("--json", "json", "print one JSON document instead of the text", False, "off", _SWITCH),
        Flag("-co --color", "color", "underline accepted draft tokens: alone or auto, on a terminal only", "off", "",
             (("metavar", "on|off|auto"), ("nargs", "?"), ("const", "auto"), ("type", tristate))),
        Flag("-v --verbose --log-verbose", "verbose", "llama.cpp's whole log, and the closing line", False, "off",
             _SWITCH),
    ),
}  # fmt: skip


def add_flags(parser: Parser) -> Parser:
    """Adds all flags, in their groups, and returns the parser."""
    for title, flags in GROUPS.items():
        group = parser.add_argument_group(title)
        for flag in flags:
            flag.add_to(group)
    return parser


def add_some_flags(parser: Parser, dests: Collection[str], **defaults: Any) -> Parser:
    """Adds the flags that fill `dests` and sets what the others would have filled, either with its own default or the
    given one."""
    for title, flags in GROUPS.items():
        wanted = [flag for flag in flags if flag.dest in dests]
        group = parser.add_argument_group(title) if wanted else None
        for flag in flags:
            default = defaults.get(flag.dest, flag.default)
            if flag in wanted:
                replace(flag, default=default, shown=flag.shown if default == flag.default else "").add_to(group)
            else:
                parser.set_defaults(**{flag.dest: default})
    return parser
