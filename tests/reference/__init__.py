"""Independent numpy computations that the native code is compared with. Import as `from reference import ...`.

Written from the networks' definitions, slow and plain, float64; they share no code with the package.

* llama.py: `forward(tensors, shape, tokens, positions, mask)` of tiny llama and qwen2 targets, and masks.
* eagle3.py: `Eagle3(state, shape, embeddings)` from a SpecForge-layout state dict: encode, decode with its own K/V.
* draft.py: `DraftNet(arch, keys, tensors, embeddings, head)`, all layouts of docs/head-format.md, from GGUF names.
* head_file.py: `head_file_logits(reader, embeddings, tokens, features)`, the same network from a converted GGUF.
* growth.py: `grow_scores(first, expand, limits)` and `grow_reference(net, tokens, g, start, limits)`, the dynamic tree.
"""

from .draft import DraftNet
from .eagle3 import Eagle3
from .growth import Limits, ReferenceTree, grow_reference, grow_scores
from .head_file import head_file_logits
from .layers import rope_divisors
from .llama import LlamaOutput, forward
from .masks import causal_mask, chunk_mask, tree_mask, tree_positions, window_mask

__all__ = [
    "DraftNet",
    "Eagle3",
    "Limits",
    "LlamaOutput",
    "ReferenceTree",
    "causal_mask",
    "chunk_mask",
    "forward",
    "grow_reference",
    "grow_scores",
    "head_file_logits",
    "rope_divisors",
    "tree_mask",
    "tree_positions",
    "window_mask",
]
