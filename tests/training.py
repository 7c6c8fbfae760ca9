"""Small things to train on: heads with random weights, examples, and their networks in numpy. Needs torch."""

from typing import Any

import numpy as np
import torch

from llama_eagle.train.example import Example, Text
from llama_eagle.train.head import Head
from llama_eagle.train.shape import HeadShape
from reference import Eagle3
from tiny import HeadShape as TinyHead

SHAPE = HeadShape(32, 4, 2, 8, 48, 60, 512, (1, 2), 1e-5, 10000.0)
IDS = np.sort(np.random.default_rng(1).permutation(60)[:40])


def random_head(seed: int = 0) -> Head:
    torch.manual_seed(seed)
    head = Head(SHAPE, torch.from_numpy(IDS), torch.randn(60, 32))
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(torch.randn(weight.shape) * (0.3 if weight.ndim == 2 else 0.1) + (weight.ndim == 1))
    return head


def random_text(seed: int, prompt: int, answer: int) -> Text:
    tokens = np.random.default_rng(seed).integers(0, 60, prompt + answer).tolist()
    return Text(tuple(tokens[:prompt]), tuple(tokens[prompt:]), greedy=True)


def random_example(seed: int, prompt: int, answer: int, k: int = 6) -> Example:
    rng, text = np.random.default_rng([seed, 5]), random_text(seed, prompt, answer)
    ids = np.stack([rng.permutation(60)[:k] for _ in range(text.count)]).astype(np.int32)
    logp = -np.sort(rng.exponential(2.0, (text.count, k)), axis=1)
    features = rng.standard_normal((text.rows, 64)).astype(np.float16)
    return Example(text, features, ids, logp.astype(np.float16))


def numbers() -> torch.Tensor:
    inverse = np.full(60, -1, np.int64)
    inverse[IDS] = np.arange(len(IDS))
    return torch.from_numpy(inverse)


def numpy_net(head: Head) -> Any:
    """The same network in numpy, one sequence with a cache."""
    state = {name: value.detach().numpy() for name, value in head.state_dict().items()}
    state["d2t"] = IDS - np.arange(len(IDS))
    sizes = TinyHead(32, 32, 4, 2, 8, 48, 60, 40, eps=1e-5)
    return Eagle3(state, sizes, head.embeddings.numpy())
