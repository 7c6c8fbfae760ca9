"""Random draft trees and the plain decoding of their paths, for tests of tree attention."""

from dataclasses import dataclass, field

import numpy as np

from llama_eagle import Batch, Context, DraftTree, InputError


def random_tree(rng: np.random.Generator, nodes: int, n_vocab: int, depth: int = 6) -> DraftTree:
    """A tree of `nodes` random nodes in level order behind a random root."""
    parents: list[int] = []
    depths: list[int] = []
    for _ in range(nodes):
        open_nodes = [-1] + [i for i, d in enumerate(depths) if d < depth]
        parent = int(rng.choice(open_nodes))
        parents.append(parent)
        depths.append(1 if parent < 0 else depths[parent] + 1)
    order = sorted(range(nodes), key=lambda i: depths[i])
    place = {old: new for new, old in enumerate(order)}
    tokens = rng.choice(np.arange(3, n_vocab), nodes, replace=False)
    return DraftTree.from_lists(
        int(rng.integers(3, n_vocab)),
        [int(tokens[i]) for i in order],
        [-1 if parents[i] < 0 else place[parents[i]] for i in order],
        [0.0] * nodes,
    )


def ancestors(tree: DraftTree, node: int) -> list[int]:
    """The nodes from the root's child down to `node`."""
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = int(tree.parents[node])
    return path


@dataclass
class Plain:
    """Decodes plain sequences on a context of its own; the definition that trees are compared with."""

    context: Context
    prefix: list[int] = field(default_factory=list)

    def _return_to(self, prefix: list[int]) -> None:
        """Leaves just `prefix` in the cache, decoding it only where it is not there."""
        try:
            if prefix != self.prefix:
                raise InputError("another prefix")
            self.context.seq_rm(0, len(prefix))
        except InputError:
            self.context.clear()
            for first in range(0, len(prefix), self.context.n_batch):
                self.context.decode(Batch(prefix[first : first + self.context.n_batch]))
            self.prefix = list(prefix)

    def rows(self, prefix: list[int], text: list[int], step: int) -> np.ndarray:
        """float32 [len(text), n_vocab]: logits of `text` behind `prefix`, decoded `step` tokens at a time."""
        self._return_to(prefix)
        rows = []
        for first in range(0, len(text), step):
            part = text[first : first + step]
            self.context.decode(Batch(part, outputs=[1] * len(part)))
            rows.append(self.context.logits())
        return np.concatenate(rows)


def tree_rows(plain: Plain, prefix: list[int], tree: DraftTree, step: int) -> np.ndarray:
    """float32 [nodes + 1, n_vocab]: what each node's logits must be, from its path as a plain sequence."""
    res: dict[int, np.ndarray] = {}
    leaves = [i for i in range(len(tree)) if i not in set(tree.parents.tolist())]
    for leaf in leaves:
        path = ancestors(tree, leaf)
        rows = plain.rows(prefix, [tree.root, *(int(tree.tokens[i]) for i in path)], step)
        res[-1] = rows[0]
        res.update(dict(zip(path, rows[1:], strict=True)))
    return np.stack([res[i] for i in range(-1, len(tree))])
