"""Training-time test (EAGLE-3, arXiv 2503.01840, section 3.2): a head reads its own outputs for several steps.

In step i a row has moved i tokens on. It sees what true features gave, up to where it started, and of the steps behind
that only its own: what a draft of the runtime sees. Tokens are the text's, as those of an accepted draft are.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .batch import TrainBatch
from .head import Head

Pair = tuple[Tensor, Tensor]


def unroll(head: Head, batch: TrainBatch, steps: int) -> Iterator[Tensor]:
    """Of each step the normed states [count, n_embd] that lm_head reads; row j of step i guesses answer j + i + 1."""
    hidden = head.fc(batch.features)
    x = head.inputs(batch.words, hidden)
    true = head.key_value(x, batch.positions)
    x, hidden, at = x[batch.trained], hidden[batch.trained], batch.positions[batch.trained]
    own: list[Pair] = []
    for step in range(steps):
        if step:
            x = head.inputs(batch.answer(step), hidden)
            own.append(head.key_value(x, at + step))
        hidden = head.output(hidden, attend(head.query(x, at + step), true, own, batch.spans))
        yield head.norm(hidden)


def attend(q: Tensor, true: Pair, own: Sequence[Pair], spans: Sequence[tuple[int, int]]) -> Tensor:
    """Attention of the trained rows, text by text: q [count, n_head, dim] -> [count, n_head * dim].

    true   keys and values of all rows, each row sees those of its text up to itself
    own    of each later step, [count, n_head_kv, dim]: a row sees its own
    spans  rows and trained rows of each text, the last ones of it
    """
    rows, counts = [n for n, _ in spans], [count for _, count in spans]
    keys, values = true[0].split(rows), true[1].split(rows)
    mixed, first = [], 0
    for text, part in enumerate(q.split(counts)):
        mine = [(k[first : first + len(part)], v[first : first + len(part)]) for k, v in own]
        mixed.append(_attend(part, (keys[text], values[text]), mine))
        first += len(part)
    return torch.cat(mixed)


def _attend(q: Tensor, true: Pair, own: Sequence[Pair]) -> Tensor:
    """One text: q [count, n_head, dim], its rows the last of `true`."""
    count, n_head, dim = q.shape
    n, n_kv, _ = true[0].shape
    q = q.view(count, n_kv, n_head // n_kv, dim).permute(1, 2, 0, 3) * dim**-0.5
    keys, values = (part.permute(1, 2, 0)[:, None] for part in true)  # [n_kv, 1, dim, n]
    seen = torch.ones(count, n, dtype=torch.bool, device=q.device).tril(n - count)
    scores = [(q @ keys).masked_fill(~seen, -torch.inf)]
    scores += [(q * k.transpose(0, 1)[:, None]).sum(-1, keepdim=True) for k, _ in own]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    mixed = weights[..., :n] @ values.transpose(-1, -2)
    for step, (_, v) in enumerate(own):
        mixed = mixed + weights[..., n + step, None] * v.transpose(0, 1)[:, None]
    return mixed.permute(2, 0, 1, 3).reshape(count, n_head * dim)
