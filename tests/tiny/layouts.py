"""Tiny random draft checkpoints, each in exactly one producer's layout: config and tensors as that tool writes them.

Every function of CASES says in its docstring where the layout is documented. Sizes: hidden 32, 4 heads of 8 (or of 16
where the layout allows a head size of its own), 2 K/V heads, ffn 48, 272 target and 24 draft tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .head import State

HIDDEN, FFN, HEADS, KV_HEADS, VOCAB, DRAFT_VOCAB = 32, 48, 4, 2, 272, 24
Config = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """A checkpoint and what a converter must make of it: `prefixes` of its layers, `fc`'s name, size of a head."""

    config: Config
    state: State
    arch: str
    layout: str
    layers: tuple[int, ...]
    prefixes: tuple[str, ...]
    version: str = "3"
    head_dim: int = 8
    fc: str = "fc"


class _Tensors:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state: State = {}

    def add(self, name: str, *shape: int) -> None:
        self.state[name] = self.rng.normal(size=shape).astype(np.float32)

    def layer(self, prefix: str, inputs: int, norms: tuple[str, ...], head_dim: int = 8) -> "_Tensors":
        """A decoder layer: the matrices of Llama, and the norms that are named."""
        queries, keys = HEADS * head_dim, KV_HEADS * head_dim
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            self.add(f"{prefix}self_attn.{part}_proj.weight", rows, inputs)
        self.add(f"{prefix}self_attn.o_proj.weight", HIDDEN, queries)
        self.add(f"{prefix}mlp.gate_proj.weight", FFN, HIDDEN)
        self.add(f"{prefix}mlp.up_proj.weight", FFN, HIDDEN)
        self.add(f"{prefix}mlp.down_proj.weight", HIDDEN, FFN)
        for norm in norms:
            self.add(f"{prefix}{norm}.weight", HIDDEN)
        return self

    def biases(self, prefix: str, parts: str, head_dim: int = 8) -> None:
        """Biases of q, k, v, o, and m: the three of the ffn."""
        rows = {"q": HEADS * head_dim, "k": KV_HEADS * head_dim, "v": KV_HEADS * head_dim, "o": HIDDEN}
        for part in parts.replace("m", ""):
            self.add(f"{prefix}self_attn.{part}_proj.bias", rows[part])
        if "m" in parts:
            for part, size in (("gate", FFN), ("up", FFN), ("down", HIDDEN)):
                self.add(f"{prefix}mlp.{part}_proj.bias", size)

    def vocabulary(self) -> None:
        """lm_head of the draft vocabulary, d2t as offsets, t2d as a mask."""
        ids = np.sort(self.rng.permutation(VOCAB)[:DRAFT_VOCAB])
        self.add("lm_head.weight", DRAFT_VOCAB, HIDDEN)
        self.state["d2t"] = ids - np.arange(DRAFT_VOCAB)
        self.state["t2d"] = np.isin(np.arange(VOCAB), ids)


EAGLE3_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")


def _config(**changes: Any) -> Config:
    base = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": 1, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "vocab_size": VOCAB,
    }  # fmt: skip
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def _eagle1(bias: bool) -> _Tensors:
    tensors = _Tensors(1).layer("layers.0.", HIDDEN, ("post_attention_layernorm",))
    tensors.add("fc.weight", HIDDEN, 2 * HIDDEN)
    tensors.add("embed_tokens.weight", VOCAB, HIDDEN)
    if bias:
        tensors.add("fc.bias", HIDDEN)
    return tensors


def _eagle3(prefix: str, head_dim: int = 8, features: int = 3, width: int = HIDDEN) -> _Tensors:
    tensors = _Tensors(3).layer(prefix, 2 * HIDDEN, EAGLE3_NORMS, head_dim)
    tensors.add("fc.weight", HIDDEN, features * width)
    tensors.add("norm.weight", HIDDEN)
    tensors.vocabulary()
    return tensors


def vicuna() -> Draft:
    """EAGLE-1/2 for Vicuna and LLaMA2: SafeAILab/EAGLE eagle/model/cnets1.py, train/vicuna_7B_config.json. No `bias`
    key means a bias; no rope_theta means 10000."""
    return Draft(
        _config(num_key_value_heads=KV_HEADS), _eagle1(True).state, "eagle", "safeailab", (-1,), ("layers.0.",), "1"
    )


def llama3_eagle1() -> Draft:
    """EAGLE-1/2 for LLaMA3: train/llama3_8B_config.json of SafeAILab/EAGLE: `bias` is false, rope_theta 500000. A head
    size in the config is not read by cnets1.py."""
    config = _config(bias=False, rope_theta=500000.0, head_dim=16)
    return Draft(config, _eagle1(False).state, "eagle", "safeailab", (-1,), ("layers.0.",), "1")


def qwen2_eagle1() -> Draft:
    """EAGLE-1/2 for Qwen2 and Qwen2.5: `qkv_bias`, cnets1.py of SafeAILab/EAGLE."""
    tensors = _eagle1(True)
    tensors.biases("layers.0.", "qkv")
    config = _config(architectures=["Qwen2ForCausalLM"], model_type="qwen2", qkv_bias=True)
    return Draft(config, tensors.state, "eagle", "safeailab", (-1,), ("layers.0.",), "1")


def mixtral_eagle1() -> Draft:
    """EAGLE-1/2 for Mixtral: a dense layer under model_type mixtral, train/mixtral_config.json of SafeAILab/EAGLE."""
    config = _config(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=8)
    return Draft(config, _eagle1(True).state, "eagle", "safeailab", (-1,), ("layers.0.",), "1")


def hass() -> Draft:
    """HASS (arXiv 2408.15766) as vLLM's llama_eagle.py reads it: `add_para_norm`, a norm on either input of fc."""
    tensors = _eagle1(True)
    tensors.add("embedding_layernorm.weight", HIDDEN)
    tensors.add("hidden_states_layernorm.weight", HIDDEN)
    config = _config(add_para_norm=True)
    return Draft(config, tensors.state, "eagle", "hass", (-1,), ("layers.0.",), "1")


def speculators_eagle1() -> Draft:
    """EAGLE-1 of vllm-project/speculators before 0.2 (models/eagle.py): fusion_fc, transformer, two norms."""
    tensors = _Tensors(2).layer("transformer.", HIDDEN, ("post_attention_layernorm",))
    for name, *shape in (
        ("fusion_fc.weight", HIDDEN, 2 * HIDDEN),
        ("fusion_fc.bias", HIDDEN),
        ("embedding_layernorm.weight", HIDDEN),
        ("pre_lm_head_layernorm.weight", HIDDEN),
        ("lm_head.weight", VOCAB, HIDDEN),
    ):
        tensors.add(name, *shape)  # type: ignore[arg-type]
    config = {
        "architectures": ["EagleSpeculator"], "speculators_model_type": "eagle", "fusion_bias": True,
        "layernorms": True, "transformer_layer_config": _config(),
    }  # fmt: skip
    return Draft(config, tensors.state, "eagle", "speculators", (-1,), ("transformer.",), "1", 8, "fusion_fc")


def safeailab_eagle3() -> Draft:
    """EAGLE-3: SafeAILab/EAGLE eagle/model/cnets.py and traineagle3/config.json. No layer ids, no rope_theta."""
    config = _config(draft_vocab_size=DRAFT_VOCAB)
    return Draft(config, _eagle3("midlayer.").state, "eagle3", "safeailab", (2, 6, 9), ("midlayer.",))


def specforge() -> Draft:
    """SpecForge (specforge/modeling/draft/llama3_eagle.py): nested ids are outputs, a head size of its own."""
    config = _config(
        architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB, head_dim=16,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 4, 7], "use_aux_hidden_state": True},
    )  # fmt: skip
    state = _eagle3("midlayer.", 16).state
    return Draft(config, state, "eagle3", "specforge", (2, 5, 8), ("midlayer.",), "3", 16)


def angelslim() -> Draft:
    """Tencent/AngelSlim: architecture Eagle3LlamaForCausalLM, ids not saved, head_dim given."""
    config = _config(
        architectures=["Eagle3LlamaForCausalLM"], draft_vocab_size=DRAFT_VOCAB, head_dim=16, target_model_type="qwen3",
        rope_theta=1e6,
    )  # fmt: skip
    state = _eagle3("midlayer.", 16).state
    return Draft(config, state, "eagle3", "angelslim", (2, 6, 9), ("midlayer.",), "3", 16)


def speculators() -> Draft:
    """vllm-project/speculators models/eagle3 (RedHatAI): body nested, top-level ids are inputs, both extra switches."""
    tensors = _eagle3("layers.0.")
    tensors.add("input_norm.weight", 3 * HIDDEN)
    tensors.add("verifier_norm.weight", HIDDEN)
    config = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": DRAFT_VOCAB,
        "eagle_aux_hidden_state_layer_ids": [2, 6, 12], "norm_before_residual": True, "norm_before_fc": True,
        "target_hidden_size": None, "transformer_layer_config": _config(rope_parameters={"rope_theta": 5e5}),
    }  # fmt: skip
    return Draft(config, tensors.state, "eagle3", "speculators", (2, 6, 12), ("layers.0.",))


def speculators_eagle31() -> Draft:
    """EAGLE-3.1 (arXiv 2605.09992) of speculators models/eagle3/core.py: a norm per feature, normed feedback."""
    tensors = _eagle3("layers.0.")
    for index in range(3):
        tensors.add(f"fc_norm.{index}.weight", HIDDEN)
    config = {
        "architectures": ["Eagle3DraftModel"], "draft_vocab_size": DRAFT_VOCAB, "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [2, 6, 9], "fc_norm": True, "norm_output": True,
        "transformer_layer_config": _config(),
    }  # fmt: skip
    return Draft(config, tensors.state, "eagle3", "speculators", (2, 6, 9), ("layers.0.",), "3.1")


def modelopt() -> Draft:
    """NVIDIA TensorRT-Model-Optimizer (export/plugins/hf_spec_export.py): eagle_config with switches, unordered ids."""
    tensors = _eagle3("midlayer.")
    tensors.add("input_norm.weight", 3 * HIDDEN)
    nested = {
        "eagle_aux_hidden_state_layer_ids": [8, 1, 5], "use_aux_hidden_state": True, "norm_before_fc": True,
        "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False,
    }  # fmt: skip
    config = _config(
        architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB, eagle_config=nested, rope_theta=5e5
    )
    return Draft(config, tensors.state, "eagle3", "modelopt", (2, 6, 9), ("midlayer.",))


def tensorrt_list() -> Draft:
    """TensorRT-LLM (modeling_speculative.py) keeps `midlayer` as a list: midlayer.0.*, midlayer.1.*."""
    tensors = _eagle3("midlayer.0.").layer("midlayer.1.", HIDDEN, ("input_layernorm", "post_attention_layernorm"))
    config = _config(draft_vocab_size=DRAFT_VOCAB, num_hidden_layers=2)
    return Draft(config, tensors.state, "eagle3", "safeailab", (2, 6, 9), ("midlayer.0.", "midlayer.1."))


def vllm_layers() -> Draft:
    """vLLM llama_eagle3.py: several layers, the later ones plain; every bias, and the q/k norms of Qwen3."""
    tensors = _eagle3("layers.0.", 16)
    tensors.layer("layers.1.", HIDDEN, ("input_layernorm", "post_attention_layernorm"), 16)
    tensors.layer("layers.2.", HIDDEN, ("hidden_norm", "post_attention_layernorm"), 16)  # SGLang's name for it
    tensors.add("fc.bias", HIDDEN)
    for prefix in ("layers.0.", "layers.1.", "layers.2."):
        tensors.biases(prefix, "qkvom", 16)
        tensors.add(f"{prefix}self_attn.q_norm.weight", 16)
        tensors.add(f"{prefix}self_attn.k_norm.weight", 16)
    config = _config(
        draft_vocab_size=DRAFT_VOCAB, num_hidden_layers=3, head_dim=16, attention_bias=True, mlp_bias=True, bias=True,
        norm_before_residual=False, eagle_aux_hidden_state_layer_ids=[9, 2, 6],
    )  # fmt: skip
    prefixes = ("layers.0.", "layers.1.", "layers.2.")
    return Draft(config, tensors.state, "eagle3", "speculators", (2, 6, 9), prefixes, "3", 16)


def last_hidden() -> Draft:
    """NVIDIA's first gpt-oss draft (SGLang issue 9739): use_aux_hidden_state false, no fc, no head, no map."""
    state = {k: v for k, v in _eagle3("midlayer.").state.items() if k.startswith(("midlayer", "norm"))}
    config = _config(draft_vocab_size=None, eagle_config={"use_aux_hidden_state": False})
    return Draft(config, state, "eagle3", "specforge", (-1,), ("midlayer.",))


CASES: dict[str, Callable[[], Draft]] = {
    case.__name__: case
    for case in (
        vicuna, llama3_eagle1, qwen2_eagle1, mixtral_eagle1, hass, speculators_eagle1, safeailab_eagle3, specforge,
        angelslim, speculators, speculators_eagle31, modelopt, tensorrt_list, vllm_layers, last_hidden,
    )
}  # fmt: skip
