"""known_heads.py: every row has its source, and only the very model that a head was trained for finds it."""

import re

import pytest

from llama_eagle.hub.known_heads import KNOWN_HEADS, heads_for
from llama_eagle.hub.names import HubName


def test_every_row_cites_its_source() -> None:
    for row in KNOWN_HEADS:
        assert HubName.parse(row.head).repo == row.head
        assert re.fullmatch(r"[0-9a-f]{40}", row.source.commit)
        assert re.search(r"\d{4}-\d{2}-\d{2}$", row.source.date)
        assert row.source.address.startswith("github.com/")
    assert len({row.head for row in KNOWN_HEADS}) == len(KNOWN_HEADS)


def test_every_target_finds_its_own_heads() -> None:
    for row in KNOWN_HEADS:
        assert row in heads_for(row.target)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("Qwen/Qwen3-8B-GGUF", "Tengyunw/qwen3_8b_eagle3"),
        ("unsloth/Qwen3-8B-GGUF", "Tengyunw/qwen3_8b_eagle3"),
        ("bartowski/Qwen_Qwen3-8B-GGUF", "Tengyunw/qwen3_8b_eagle3"),
        ("Qwen3 8B", "Tengyunw/qwen3_8b_eagle3"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        ("Meta Llama 3.1 8B Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        ("Llama-3.3-70B-Instruct", "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"),
        ("TheBloke/Llama-2-7B-Chat-GGUF", "yuhuili/EAGLE-llama2-chat-7B"),
        ("ggml-org/gpt-oss-20b-GGUF", "RedHatAI/gpt-oss-20b-speculator.eagle3"),
    ],
)
def test_usual_spellings(name: str, head: str) -> None:
    assert heads_for(name)[0].head == head


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B-Base-GGUF",
        "Qwen/Qwen2.5-8B",
        "Qwen/Qwen3-0.6B-GGUF",
        "unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF",
        "someone/Qwen3-8B-abliterated-GGUF",
        "unsloth/Qwen3-8B-128K-GGUF",
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3-8B",
        "meta-llama/Llama-3.2-8B-Instruct",
        "Qwen/Qwen3-30B-A3B-Thinking-2507",
        "other_Qwen3-8B",
        "",
    ],
)
def test_relatives_are_strangers(name: str) -> None:
    assert heads_for(name) == []


def test_what_it_was_made_from_must_agree() -> None:
    assert heads_for("unsloth/Qwen3-8B-GGUF", ["Qwen/Qwen3-8B"])
    assert heads_for("unsloth/Qwen3-8B-GGUF", ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"])
    assert not heads_for("someone/Qwen3-8B-GGUF", ["someone/my-finetune"])
