"""Tiny random models for tests: deterministic by seed, no network, no native code. Import as `from tiny import ...`.

Targets (GGUF, f32 or f16, under 1 MB at the default sizes):

    shape = target_shape("llama", seed=3, head_dim=32)  # a key of PRESETS, any field of TargetShape
    target = write_target(tmp_path / "t.gguf", shape)   # TinyTarget(path, shape, tensors); tensors float32 [out, in]

* llama, qwen2: plain cache. gemma2 (even layers windowed, soft caps), gemma3 (five of six windowed, or `swa_pattern`;
  q/k norms): window caches (iswa) of `window` positions; gemma3 with window=0 has the plain cache again. llama4 (four
  layers, experts): chunked iswa; the chunk is fixed at 8192, so start a sequence near position 8180 to meet an edge.
  deepseek2: plain cache with MLA rows.
* llama.cpp pads a window cache to 256 cells: only sequences longer than that, in a context of 512 and more, reuse its
  cells.
* Quantised K needs head_dim a multiple of 32 (qwen2: n_head=2, n_head_kv=1 then); deepseek2's rows fit at the default.
  With flash attention off llama.cpp does not check that and computes garbage.
* Flash attention rounds K and V to f16 whatever the cache type, a relative 2e-3 of the logits: compare like with like.
* Vocabulary: ids 0..255 are the bytes, 256 bos, 257 <|im_start|>, 258 <|im_end|> = eos, then merged letter pairs.

EAGLE-3 heads, for a target of the same n_vocab and width:

    head = HeadShape(seed=5, n_draft_vocab=192)            # layers=(2, 3, 5): inputs of these target layers
    state = random_head(head)                              # SpecForge names and layout, float32, d2t offsets
    write_checkpoint(tmp_path / "head", head, state, dtype="bf16")   # config.json + model.safetensors
    write_head_gguf(tmp_path / "h.gguf", head, state)      # eagle3 GGUF without the package's converter

Heads of every other layout in docs/head-format.md, by GGUF names:

    draft = random_draft(eagle_shape("fc_bias"))           # or eagle3_shape("qk_norm", n_layer=2), any DraftShape
    draft.write(tmp_path / "d.gguf")                       # its keys and tensors may be changed before

Drafts that get accepted: `pair = good_pair(tmp_path)` writes a target whose next token mostly follows from the current
one and a head that knows it, TinyPair(target, head, state, path): about 2.5 tokens a step with trees of 16 (depth 4,
top_k 4), 1.9 with chains of 4.
"""

from .checkpoint import as_float32, bf16, head_config, write_checkpoint, write_folder, write_safetensors
from .draft import Draft, DraftShape, eagle3_shape, eagle_shape, random_draft
from .head import good_head, random_head, target_ids
from .head_gguf import write_head_gguf
from .pair import TinyPair, good_pair, random_pair
from .shapes import PRESETS, HeadShape, TargetShape, target_shape
from .target import TinyTarget, write_target
from .tokenizer import BOS, CHAT_TEMPLATE, EOS, IM_START
from .weights import target_tensors

__all__ = [
    "BOS",
    "CHAT_TEMPLATE",
    "EOS",
    "IM_START",
    "PRESETS",
    "Draft",
    "DraftShape",
    "HeadShape",
    "TargetShape",
    "TinyPair",
    "TinyTarget",
    "as_float32",
    "bf16",
    "eagle3_shape",
    "eagle_shape",
    "good_head",
    "good_pair",
    "head_config",
    "random_draft",
    "random_head",
    "random_pair",
    "target_ids",
    "target_shape",
    "target_tensors",
    "write_checkpoint",
    "write_folder",
    "write_head_gguf",
    "write_safetensors",
    "write_target",
]
