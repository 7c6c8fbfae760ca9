"""Sizes that llama.cpp's loader and graphs abort on are refused, each by its key and value."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguf_edit import ARRAY, BOOL, F32, I32, STRING, U32, Changes, check_refused, rewrite, write_sketch
from llama_eagle.gguf_files.check import check_gguf

HOSTILE: list[tuple[str, Changes, str]] = [
    ("llama", {"llama.block_count": (U32, 0)}, "block_count is 0"),
    ("llama", {"llama.block_count": (U32, 513)}, "block_count is 513"),
    ("llama", {"llama.block_count": (I32, -1)}, "block_count is -1"),
    ("llama", {"llama.block_count": (F32, 6.0)}, "block_count is no whole number"),
    ("llama", {"llama.block_count": (ARRAY, U32, [])}, "block_count is no whole number"),
    ("llama", {"llama.embedding_length": (U32, 0)}, "embedding_length is 0"),
    ("llama", {"llama.context_length": (U32, 2**32 - 1)}, "context_length is 4294967295"),
    ("llama", {"llama.nextn_predict_layers": (U32, 7)}, "nextn_predict_layers is 7"),
    ("llama", {"llama.attention.layer_norm_rms_epsilon": (F32, math.nan)}, "is nan"),
    ("llama", {"llama.attention.layer_norm_rms_epsilon": (F32, -1e-5)}, "is -1e-05|is -9.99"),
    ("llama", {"llama.rope.freq_base": (F32, 0.0)}, "freq_base is 0.0"),
    ("llama", {"llama.rope.scaling.type": (STRING, b"bent")}, "'bent'"),
    ("llama", {"llama.attention.head_count": (U32, 5)}, "5 heads over 2"),
    ("llama", {"llama.attention.head_count": (ARRAY, U32, [4, 4])}, "has 2 entries"),
    ("llama", {"llama.expert_count": (U32, 4)}, "0 of 4 experts"),
    ("llama", {"llama.expert_used_count": (U32, 2)}, "2 of 0 experts"),
    ("llama", {"llama.rope.dimension_count": (U32, 8)}, "dimension_count is 8"),
    ("qwen2", {"qwen2.attention.key_length": (U32, 8)}, "keys of 8 and values of 16"),
    ("qwen2", {"qwen2.attention.head_count": (U32, 2)}, "attn_q.weight"),
    ("gemma2", {"gemma2.rope.dimension_count": (U32, 0)}, "dimension_count is 0"),
    ("gemma2", {"gemma2.rope.dimension_count": (U32, 7)}, "dimension_count is 7"),
    ("gemma3", {"gemma3.attention.sliding_window_pattern": (ARRAY, BOOL, [False] * 6)}, "no such layer"),
    ("llama", {"llama.attention.head_count": (ARRAY, U32, [0, 4, 4, 4, 4, 4])}, "head_count is 0 in layer 0"),
    ("llama", {"llama.attention.head_count": (ARRAY, U32, [4, 4, 0, 4, 4, 4])}, "head_count is 0 in layer 2"),
    ("llama", {"llama.attention.head_count": None, "llama.attention.head_count_kv": None}, "head_count is 0"),
    ("gemma2", {"gemma2.attention.value_length": (U32, 8)}, "attn_v.weight gives 32 numbers"),
    ("gemma2", {"gemma2.attention.value_length": (U32, 8), "gemma2.attention.value_length_swa": (U32, 16)},
     "no layer's attn_k and attn_v fit gemma2.attention.key_length 16 and value_length 8"),
    ("gemma2", {"gemma2.attention.key_length_swa": (U32, 8)}, "key_length_swa 8 and value_length_swa 16"),
    ("gemma2", {"gemma2.attention.head_count_kv": (U32, 1)}, "attn_k.weight gives 32 numbers"),
    ("llama4", {"llama4.expert_used_count": (ARRAY, U32, [1, 0, 1, 1])}, "expert_used_count is 0 in layer 1"),
    ("llama4", {"llama4.expert_used_count": (ARRAY, U32, [0, 1, 1, 1])}, "expert_used_count is 0 in layer 0"),
    ("llama4", {"llama4.attention.sliding_window": (U32, 0)}, "sliding_window is 0"),
    ("deepseek2", {"deepseek2.attention.head_count_kv": (U32, 4)}, "kv_a_mqa.weight gives"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "changes", "words"), HOSTILE, ids=lambda value: str(value)[:60])
def test_hostile_sizes(
    arch: str, changes: Changes, words: str, tiny_target: Callable[..., Any], tmp_path: Path
) -> None:
    check_refused(rewrite(tiny_target(arch).path, tmp_path / "bad.gguf", changes), words)


SIZES = {"block_count": 2, "embedding_length": 32}
STATE = {"ssm.inner_size": 64, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.conv_kernel": 4}
CONVOLUTION = {"blk.0.ssm_conv1d.weight": (96, 4)}  # 64 + 2 * 2 * 8
HEADS = {"attention.head_count": 4, "attention.head_count_kv": [0, 2], "attention.key_length": 8}


@pytest.mark.parametrize("arch", ["mamba2", "granitehybrid", "qwen3next"])
def test_a_state_space_passes(arch: str, tmp_path: Path) -> None:
    check_gguf(write_sketch(tmp_path / "good.gguf", arch, SIZES | STATE, CONVOLUTION))


@pytest.mark.parametrize(
    ("arch", "changes", "words"),
    [
        ("mamba2", {"ssm.inner_size": 60}, r"ssm_conv1d.weight is \[4, 96\].* make it \[4, 92\]"),
        ("mamba2", {"ssm.conv_kernel": 0}, "ssm.conv_kernel 0"),
        ("mamba2", {"ssm.time_step_rank": 0}, "not cut by 0 heads"),
        ("mamba2", {"ssm.time_step_rank": 5}, "not cut by 5 heads in 2 groups"),
        ("mamba2", {"ssm.state_size": 2**32 - 1}, "ssm.state_size is 4294967295"),
        ("granitehybrid", {"embedding_length": 16}, "ssm.inner_size is 64, expected twice the width 16"),
        ("hrm_text", {"hrm.layers_per_stack": 1, "hrm.h_cycles": 1, "hrm.l_cycles": 2}, "block_count is 2, .* make 3"),
        ("nanbeige", {"num_loops": 300}, "num_loops"),
        ("rwkv6qwen2", {"wkv.head_size": 0}, "wkv.head_size is 0"),
        ("hy_v4", {"attention.key_length_mla": 0}, "key_length_mla is 0 or missing"),
        ("dots1", {"expert_count": 4, "expert_used_count": 2}, "no dots1.expert_gating_func"),
        ("glm5-next", {"attention.indexer.kpool": 4, "attention.indexer.top_k": 6}, "top_k is 6"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_hostile_sizes_of_single_architectures(arch: str, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    check_refused(write_sketch(tmp_path / "bad.gguf", arch, SIZES | STATE | changes, CONVOLUTION), words)


def test_layers_without_attention_pass(tmp_path: Path) -> None:
    """Zero heads of keys are how hybrid models mark them."""
    check_gguf(write_sketch(tmp_path / "good.gguf", "lfm2", SIZES | HEADS, {"blk.1.attn_k.weight": (16, 32)}))
    lengths = {"attention.value_length": 4}
    path = write_sketch(tmp_path / "bad.gguf", "lfm2", SIZES | HEADS | lengths, {})
    check_refused(path, "keys of 8 and values of 4")
