"""What the loaders and graphs of llama.cpp assert per architecture, beside what holds for all. Plain tables.

Collected from `GGML_ASSERT` in llama.cpp's `src/models/` at the pinned revision; names are those of `llama-arch.cpp`.
"""

# keys and values of one length, and rope turns all of a head ...
ROPE_ALL = frozenset(
    """
    apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream ernie4_5
    ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa graniteswitch grok grovemoe hunyuan-dense
    hunyuan-moe hunyuan_vl hy_v3 internlm2 jais2 llada llada-moe llama llama-embed llama4 maincoder mellum mistral3 olmo
    olmo2 olmoe orion paddleocr pangu-embedded plamo pockettts qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe
    rnd1 seed_oss smallthinker smollm3 starcoder2 talkie xverse""".split()
)
# ... or a part of it
ROPE_PART = frozenset(
    """
    afmoe bailingmoe2 bert bitnet bloom chatglm cohere2 command-r deepseek4 dflash eagle eagle3 eurobert glm4 glm4moe
    gpt2 gptneox granitehybrid jais laguna maple minimax-01 minimax-m2 minimax-m3 modern-bert mpt muse-glimmer
    nanbeige nemotron nemotron_h nemotron_h_moe neo-bert openelm phi2 phi3 qwen qwen35 qwen35moe qwen3next qwen4exp
    refact spark2_5 stablelm starcoder t5""".split()
)
EQUAL_HEADS = frozenset(("lfm2", "lfm2moe"))  # ... or only one length
DOUBLE_STATE = frozenset(("granitehybrid", "jamba"))  # their state space has twice the width of the model
NO_ROPE = frozenset(
    """
    bloom glm5-next gpt2 jais jamba kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h nemotron_h_moe refact starcoder t5
    """.split()
)
GATED_QUERY = frozenset(("qwen35", "qwen35moe", "qwen3next", "qwen4exp"))  # their query matrix holds a gate, too
ALL_EXPERTS = frozenset(("bailingmoe2", "glm4moe", "grovemoe", "lfm2moe", "llada-moe", "smallthinker"))
LATENT = frozenset(("deepseek32", "dots3note", "hy_v4"))  # only with compressed keys and values (MLA)
# rope by time, height and width: `rope.dimension_sections`
SECTIONS = frozenset("qwen2vl paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe qwen4exp qwen3tts".split())
# experts chosen by `expert_gating_func`, without a default for 0
GATING = frozenset(
    """
    bailingmoe2 bailingmoe3 deepseek32 deepseek4 dots1 dots3note exaone-moe hy_v4 kimi-k3 kimi-linear lfm2moe minimax-m2
    minimax-m3 smallthinker""".split()
)

_MOST = 1 << 24
# least and most of what a key of the file says, where it is there
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "afmoe": {"attention.sliding_window": (1, _MOST)},
    "arwkv7": {"wkv.head_size": (1, _MOST)},
    "bailingmoe3": {"kda.safe_gate": (1, 1), "kda.gate_lower_bound": (-1e30, -1e-30)},
    "deepseek4": {"hyper_connection.count": (4, 4)},
    "ernie4_5-moe": {"interleave_moe_layer_step": (1, _MOST)},
    "glm5-next": {"attention.indexer.kpool": (2, _MOST), "hyper_connection.count": (4, 4)},
    "grovemoe": {"experts_per_group": (1, _MOST)},
    "hrm_text": {"hrm.layers_per_stack": (1, 512), "hrm.h_cycles": (1, 512), "hrm.l_cycles": (1, 512)},
    "lfm2": {"shortconv.l_cache": (2, _MOST)},
    "lfm2moe": {"shortconv.l_cache": (2, _MOST)},
    "llama4": {"attention.sliding_window": (1, _MOST)},
    "minimax-m3": {"attention.indexer.block_size": (1, _MOST)},
    "nanbeige": {"num_loops": (1, 512)},
    "rwkv6": {"wkv.head_size": (1, _MOST), "token_shift_count": (2, 2)},
    "rwkv6qwen2": {"wkv.head_size": (1, _MOST)},
    "rwkv7": {"wkv.head_size": (1, _MOST), "token_shift_count": (2, 2)},
}
