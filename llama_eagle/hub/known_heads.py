"""Known draft heads: which head was trained for which target, as public lists say it. None is guessed.

A table and a rule that compares names; it opens no file and asks no network.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A public list of heads: where it is, the commit that was read, and the date of the commit or of the reading."""

    address: str
    commit: str
    date: str


@dataclass(frozen=True)
class KnownHead:
    """One row. target: the model's id, or its name where the source gives no id; head: an id on the hub."""

    target: str
    head: str
    source: Source


LLAMA_CPP = Source(
    "github.com/ggml-org/llama.cpp docs/speculative.md", "0c1e57098bba43ac29e6e3b677cdceebdd22334f", "read 2026-11-30"
)
EAGLE = Source("github.com/SafeAILab/EAGLE README.md", "cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b", "2026-02-19")
SPECULATORS = Source(
    "github.com/vllm-project/speculators README.md", "c05b95b303f7d4f21e8d7624e0ffa1c2d9b4d73b", "2026-08-20"
)
SPECBUNDLE = Source(
    "github.com/sgl-project/SpecForge docs/community_resources/specbundle.md",
    "a6b6b0230009d15ec2a97a57384e6f53f0f96946",
    "2026-08-08",
)

# The first head of a target is the one that is taken: EAGLE's authors' own before others, heads that llama.cpp's own
# documentation lists before the rest, EAGLE-3 before EAGLE-1/2.
_TABLE: tuple[tuple[Source, str, tuple[str, ...]], ...] = (
    (EAGLE, "lmsys/vicuna-13b-v1.3", ("yuhuili/EAGLE3-Vicuna1.3-13B", "yuhuili/EAGLE-Vicuna-13B-v1.3")),
    (EAGLE, "meta-llama/Llama-3.1-8B-Instruct", (
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B")),
    (EAGLE, "meta-llama/Llama-3.3-70B-Instruct", ("yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",)),
    (EAGLE, "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", ("yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",)),
    (EAGLE, "Qwen/Qwen3-1.7B", ("AngelSlim/Qwen3-1.7B_eagle3",)),
    (EAGLE, "Qwen/Qwen3-4B", ("AngelSlim/Qwen3-4B_eagle3",)),
    (EAGLE, "Qwen/Qwen3-8B", ("Tengyunw/qwen3_8b_eagle3", "AngelSlim/Qwen3-8B_eagle3")),
    (EAGLE, "Qwen/Qwen3-14B", ("AngelSlim/Qwen3-14B_eagle3",)),
    (EAGLE, "Qwen/Qwen3-32B", ("AngelSlim/Qwen3-32B_eagle3",)),
    (EAGLE, "Qwen/Qwen3-30B-A3B", ("Tengyunw/qwen3_30b_moe_eagle3", "AngelSlim/Qwen3-a3B_eagle3")),
    (EAGLE, "openai/gpt-oss-120b", ("lmsys/EAGLE3-gpt-oss-120b-bf16", "nvidia/gpt-oss-120b-Eagle3")),
    (LLAMA_CPP, "openai/gpt-oss-120b", ("nvidia/gpt-oss-120b-Eagle3-long-context",)),
    (LLAMA_CPP, "gpt-oss-20b", ("RedHatAI/gpt-oss-20b-speculator.eagle3",)),
    (LLAMA_CPP, "gemma-4-31B-it", ("RedHatAI/gemma-4-31B-it-speculator.eagle3",)),
    (LLAMA_CPP, "gemma-4-26B-A4B-it", ("RedHatAI/gemma-4-26B-A4B-it-speculator.eagle3",)),
    (EAGLE, "meta-llama/Llama-4-Scout-17B-16E-Instruct", ("lmsys/sglang-EAGLE3-Llama-4-Scout-17B-16E-Instruct-v1",)),
    (EAGLE, "meta-llama/Llama-4-Maverick-17B-128E-Instruct", (
        "lmsys/sglang-EAGLE3-Llama-4-Maverick-17B-128E-Instruct-v1", "nvidia/Llama-4-Maverick-17B-128E-Eagle3")),
    (EAGLE, "Qwen/Qwen3-235B-A22B", ("nvidia/Qwen3-235B-A22B-Eagle3", "lmsys/Qwen3-235B-A22B-EAGLE3")),
    (EAGLE, "allenai/OLMoE-1B-7B-0125-Instruct", ("wantsleep/OLMoE_1B_7B_Eagle3",)),
    (EAGLE, "ibm-granite/granite-3.1-1b-a400m-instruct", ("wantsleep/granite-3.1-1b-a400m-EAGLE3",)),
    (EAGLE, "zai-org/GLM-4.7-Flash", ("thoughtworks/GLM-4.7-Flash-Eagle3",)),
    (SPECULATORS, "Llama-3.1-8B-Instruct", ("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",)),
    (SPECULATORS, "Llama-3.3-70B-Instruct", ("RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-8B", ("RedHatAI/Qwen3-8B-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-14B", ("RedHatAI/Qwen3-14B-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-32B", ("RedHatAI/Qwen3-32B-speculator.eagle3",)),
    (SPECULATORS, "gpt-oss-120b", ("RedHatAI/gpt-oss-120b-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-30B-A3B-Instruct-2507", ("RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-235B-A22B-Instruct-2507", ("RedHatAI/Qwen3-235B-A22B-Instruct-2507-speculator.eagle3",)),
    (SPECULATORS, "Qwen3-235B-A22B", ("RedHatAI/Qwen3-235B-A22B-speculator.eagle3",)),
    (SPECBUNDLE, "meta-llama/Llama-3.1-8B-Instruct", ("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge",)),
    (SPECBUNDLE, "meta-llama/Llama-3.3-70B-Instruct", ("lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge",)),
    (SPECBUNDLE, "meta-llama/Llama-4-Scout-17B-16E-Instruct", (
        "lmsys/SGLang-EAGLE3-Llama-4-Scout-17B-16E-Instruct-SpecForge",)),
    (SPECBUNDLE, "Qwen/Qwen3-30B-A3B-Instruct-2507", (
        "lmsys/SGLang-EAGLE3-Qwen3-30B-A3B-Instruct-2507-SpecForge-Nex",)),
    (SPECBUNDLE, "Qwen/Qwen3-235B-A22B-Instruct-2507", (
        "lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge-Meituan",)),
    (SPECBUNDLE, "Qwen/Qwen3-Coder-30B-A3B-Instruct", (
        "lmsys/SGLang-EAGLE3-Qwen3-Coder-30B-A3B-Instruct-SpecForge",)),
    (SPECBUNDLE, "Qwen/Qwen3-Coder-480B-A35B-Instruct", (
        "lmsys/SGLang-EAGLE3-Qwen3-Coder-480B-A35B-Instruct-SpecForge-EigenAI",)),
    (SPECBUNDLE, "inclusionAI/Ling-flash-2.0", ("AQ-MedAI/Ling-Flash-2.0-eagle3",)),
    (SPECBUNDLE, "moonshotai/Kimi-K2-Instruct", ("AQ-MedAI/Kimi-K2-Instruct-eagle3",)),
    (SPECBUNDLE, "openai/gpt-oss-20b", ("zhuyksir/EAGLE3-gpt-oss-20b-bf16",)),
    (SPECBUNDLE, "nex-agi/Qwen3-30B-A3B-Nex-N1", ("nex-agi/SGLANG-EAGLE3-Qwen3-30B-A3B-Nex-N1",)),
    (SPECBUNDLE, "nex-agi/Qwen3-32B-Nex-N1", ("nex-agi/SGLANG-EAGLE3-Qwen3-32B-Nex-N1",)),
    (EAGLE, "Vicuna-7B v1.3", ("yuhuili/EAGLE-Vicuna-7B-v1.3",)),
    (EAGLE, "Vicuna-33B v1.3", ("yuhuili/EAGLE-Vicuna-33B-v1.3",)),
    (EAGLE, "Llama-2-7b-chat", ("yuhuili/EAGLE-llama2-chat-7B",)),
    (EAGLE, "Llama-2-13b-chat", ("yuhuili/EAGLE-llama2-chat-13B",)),
    (EAGLE, "Llama-2-70b-chat", ("yuhuili/EAGLE-llama2-chat-70B",)),
    (EAGLE, "mistralai/Mixtral-8x7B-Instruct-v0.1", ("yuhuili/EAGLE-mixtral-instruct-8x7B",)),
    (EAGLE, "Llama-3-8B-Instruct", ("yuhuili/EAGLE-LLaMA3-Instruct-8B",)),
    (EAGLE, "Llama-3-70B-Instruct", ("yuhuili/EAGLE-LLaMA3-Instruct-70B",)),
    (EAGLE, "Qwen2-7B-Instruct", ("yuhuili/EAGLE-Qwen2-7B-Instruct",)),
    (EAGLE, "Qwen2-72B-Instruct", ("yuhuili/EAGLE-Qwen2-72B-Instruct",)),
    (EAGLE, "Qwen2.5-14B-Instruct", ("Zjcxy-SmartAI/Eagle-Qwen2.5-14B-Instruct",)),
)  # fmt: skip

KNOWN_HEADS = tuple(KnownHead(target, head, source) for source, target, heads in _TABLE for head in heads)

# Meta renamed its repositories (Meta-Llama-3.1-8B-Instruct), and the converted ones are called -hf
_LEFT_OUT = re.compile(r"^meta-(?=llama-)|-hf$|-gguf$")


def heads_for(name: str, bases: Iterable[str] = ()) -> list[KnownHead]:
    """Known heads of a target, the one to take first.

    name: the target's id on the hub or `general.name` of its GGUF. It must be the row's name, size, version and
    "Instruct" included, in whatever case and with spaces or hyphens; what is usual in repositories of GGUFs (an ending
    -GGUF, the first owner before an underscore) does not count. bases: models that the target says it is made from;
    where it names some, the row's must be among them.
    """
    own, origins = _key(name), {_key(base) for base in bases}
    rows = [row for row in KNOWN_HEADS if own in _spellings(row.target)]
    return [row for row in rows if not origins or origins & _spellings(row.target)]


def _spellings(target: str) -> set[str]:
    """Keys under which a target may go: quantisers write OWNER_NAME, too."""
    owner, _, _ = target.rpartition("/")
    return {_key(target), f"{owner.lower()}_{_key(target)}"}


def _key(name: str) -> str:
    short = re.sub(r"[\s-]+", "-", name.rpartition("/")[2].strip().lower())
    before = None
    while before != short:
        before, short = short, _LEFT_OUT.sub("", short)
    return short
