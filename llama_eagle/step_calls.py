"""A step in one native call, and its parts: draft trees, verify them and keep a path of each.

What happens is defined by grow(), grow_static(), accept_tokens() and Context's encode, decode, features and commit.
"""

from collections.abc import Sequence
from typing import Any

from .acceptance import Path
from .context import Context
from .errors import InputError
from .ffi import C, check, ffi
from .sampler import Sampler
from .static_tree import Shape
from .tree import DraftTree
from .turn import Turn


def step(target: Context, draft: Context | None, turns: Sequence[Turn]) -> tuple[float, float]:
    """Drafts the trees that turns ask for, verifies all turns in one decode; the draft observes what was decoded.

    Returns the seconds of both parts. A turn whose token could not be chosen says so itself. Raises what decode() does,
    for all turns.
    """
    seconds = ffi.new("eagle_seconds *")
    pointers = _pointers(turns)
    if draft is None:
        with target.lock:
            handle = target.handle
            code = C.eagle_step(handle, ffi.NULL, pointers, len(turns), seconds)
    else:
        with target.lock, draft.lock:
            draft.ends, handle = {}, target.handle
            code = C.eagle_step(handle, draft.handle, pointers, len(turns), seconds)
    if code:
        check(code, handle)
    return seconds.draft, seconds.verify


def draft_trees(draft: Context, turns: Sequence[Turn]) -> None:
    """Decodes what is pending and grows a tree behind each turn's root; Turn.tree() has it."""
    with draft.lock:
        draft.ends = {}
        check(C.eagle_draft(draft.handle, _pointers(turns), len(turns)), draft.handle)


def verify_turns(target: Context, turns: Sequence[Turn]) -> None:
    """Decodes turns in one batch and commits in each tree the path along its sampler's tokens, else the argmaxes.

    The path is accept_tokens()'s. A sampler is asked for its tokens only, and goes no further than an end token.
    """
    with target.lock:
        check(C.eagle_verify(target.handle, _pointers(turns), len(turns)), target.handle)


def draft(context: Context, root: int, shape: Shape, seq_id: int = 0) -> DraftTree:
    """One tree behind a root, as draft_trees()."""
    turn = Turn(seq_id)
    turn.root(root)
    turn.draft(shape)
    draft_trees(context, [turn])
    return turn.tree()


def verify(context: Context, tree: DraftTree, sampler: Sampler | None = None, seq_id: int = 0) -> Path:
    """One tree in one decode, as verify_turns()."""
    turn = Turn(seq_id)
    turn.give(tree)
    turn.chosen_by(sampler)
    verify_turns(context, [turn])
    return turn.path()


def _pointers(turns: Sequence[Turn]) -> Any:
    if len(turns) == 1:
        return turns[0].alone
    if not turns:
        raise InputError("a step needs at least one turn")
    return ffi.new("eagle_turn *[]", [turn.raw for turn in turns])
