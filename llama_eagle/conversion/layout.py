"""Layout: in whose spelling a checkpoint's tensors are named, found by tensors and config together.

    midlayer.*, midlayer.0.*         SafeAILab eagle/model/cnets.py, SpecForge, AngelSlim, ModelOpt; TensorRT-LLM's list
    layers.0.* with hidden_norm      speculators, vLLM (EAGLE-3)
    layers.0.* without, fc           SafeAILab eagle/model/cnets1.py (EAGLE-1, EAGLE-2), HASS
    transformer.*, fusion_fc         speculators before 0.2 (EAGLE-1)

`architectures` names no layout: many producers write LlamaForCausalLM. Reads names and shapes, no values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .config_fields import mapping

EAGLE, EAGLE3 = "eagle", "eagle3"
_FIRST = ("midlayer.0.", "midlayer.", "layers.0.", "transformer.")
_NEXT = {"midlayer.0.": ("midlayer.{}.",), "midlayer.": ("midlayer.{}.", "layers.{}."), "layers.0.": ("layers.{}.",)}
EMBEDDING_NORMS = ("embedding_layernorm.weight", "embed_layernorm.weight", "enorm.weight")  # HASS alone has one


@dataclass(frozen=True)
class Layout:
    """arch: of the GGUF. name: whose layout. prefixes: of each decoder layer's tensors. fc: the fusion's own name."""

    arch: str
    name: str
    prefixes: tuple[str, ...]
    fc: str = "fc"


def find_layout(checkpoint: Checkpoint) -> Layout:
    """The layout of a checkpoint. Raises CheckpointError if it is no EAGLE draft."""
    names = checkpoint.names
    first = next((prefix for prefix in _FIRST if any(name.startswith(prefix) for name in names)), None)
    fc = "fusion_fc" if "fusion_fc.weight" in checkpoint else "fc"
    if first is None or (first == "transformer." and fc == "fc"):
        raise _no_draft(checkpoint)
    prefixes = (first, *_further(names, first))
    if first.startswith("midlayer") or _takes_both(checkpoint, first):
        return Layout(EAGLE3, _eagle3_name(checkpoint.config, first), prefixes)
    if f"{fc}.weight" not in checkpoint:
        raise _no_draft(checkpoint)
    return Layout(EAGLE, _eagle_name(checkpoint, fc), prefixes, fc)


def _takes_both(checkpoint: Checkpoint, prefix: str) -> bool:
    """Whether the layer attends over (embedding, feature): EAGLE-3's mark."""
    if f"{prefix}hidden_norm.weight" in checkpoint:
        return True
    query, output = f"{prefix}self_attn.q_proj.weight", f"{prefix}self_attn.o_proj.weight"
    if query not in checkpoint or output not in checkpoint:
        return False
    return checkpoint.shape(query)[-1:] == tuple(2 * n for n in checkpoint.shape(output)[:1])


def _further(names: list[str], first: str) -> list[str]:
    found: list[str] = []
    for pattern in _NEXT.get(first, ()):
        prefix = pattern.format(len(found) + 1)
        while any(name.startswith(prefix) for name in names):
            found.append(prefix)
            prefix = pattern.format(len(found) + 1)
    return found


def _eagle3_name(config: Mapping[str, Any], first: str) -> str:
    if first == "layers.0.":
        return "speculators"
    names = config.get("architectures")
    architecture = names[0] if isinstance(names, list) and names else ""
    nested = mapping(config, "eagle_config")
    if architecture == "Eagle3LlamaForCausalLM":
        return "angelslim"
    if any(key.startswith("use_") and key != "use_aux_hidden_state" for key in nested):
        return "modelopt"
    return "specforge" if nested or architecture == "LlamaForCausalLMEagle3" else "safeailab"


def _eagle_name(checkpoint: Checkpoint, fc: str) -> str:
    if fc == "fusion_fc":
        return "speculators"
    if any(name in checkpoint for name in EMBEDDING_NORMS):
        return "hass"
    return "modelopt" if mapping(checkpoint.config, "eagle_config") else "safeailab"


def _no_draft(checkpoint: Checkpoint) -> CheckpointError:
    some = ", ".join(checkpoint.names[:3]) or "none"
    return CheckpointError(
        f"{checkpoint.folder} is not an EAGLE draft: no midlayer.*, no fc with layers.0.* (its tensors: {some}, ...)"
    )
