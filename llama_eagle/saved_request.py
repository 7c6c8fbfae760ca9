"""Saved requests: a running text as a session file, and back. Both caches, what the draft has not seen, the sampler.

Knows which parts there are; their format is session_file.py's, what they mean to llama.cpp the context's.
"""

from pathlib import Path

import numpy as np

from .errors import SessionError
from .generate import Loop
from .gguf_files.identity import file_identity
from .request import Request
from .sampler_state import SamplerState, tokens_from_bytes, tokens_to_bytes
from .session_file import Session, SessionHeader, read_session, settings_of, write_session
from .slot import Slot

_TARGET, _DRAFT, _PENDING_TOKENS, _PENDING_ROWS = "target", "draft", "pending_tokens", "pending_rows"


def header_of(loop: Loop) -> SessionHeader:
    """Whose state a session of this loop is; the rule of acceptance counts, for a seed's text depends on it."""
    model, drafter = loop.target.model, loop.drafter
    draft = file_identity(drafter.context.model.path) if drafter is not None else None
    settings = {**settings_of(loop.target.params), "accept": loop.accept}
    return SessionHeader(model.meta("general.architecture") or "", file_identity(model.path), draft, settings)


def save(path: Path, request: Request, slot: Slot, loop: Loop) -> None:
    """Writes a running request. Raises SessionError where the file cannot be written."""
    target, drafter = loop.target, loop.drafter
    state = SamplerState(request.params, tuple(request.prompt), tuple(request.result.tokens))
    sections = {**state.to_sections(), _TARGET: target.state(slot.seq_id)}
    if drafter is not None:
        tokens, rows = drafter.pending_rows(slot.seq_id)
        sections[_DRAFT] = drafter.context.state(slot.seq_id) if drafter.context.n_past(slot.seq_id) else b""
        sections[_PENDING_TOKENS], sections[_PENDING_ROWS] = tokens_to_bytes(tokens), rows.tobytes()
    write_session(path, Session(header_of(loop), sections))


def read(path: Path, loop: Loop) -> tuple[SamplerState, Session]:
    """A session of this loop. Raises SessionError for a file that is none, damaged, or another pair's."""
    session = read_session(path, header_of(loop))
    for name in (_TARGET,) if loop.drafter is None else (_TARGET, _DRAFT, _PENDING_TOKENS, _PENDING_ROWS):
        if name not in session.sections:
            raise SessionError(f"{path}: the session has no section {name!r}")
    return SamplerState.from_sections(session.sections), session


def restore(session: Session, slot: Slot, tokens: list[int], loop: Loop) -> None:
    """Puts a session's caches into a slot that is empty; `tokens` are its prompt and what was emitted."""
    target, drafter = loop.target, loop.drafter
    target.set_state(session.sections[_TARGET], slot.seq_id)
    decoded = target.n_past(slot.seq_id)
    if decoded >= len(tokens):
        raise SessionError(f"the session has {decoded} decoded tokens of a text of {len(tokens)}")
    slot.tokens, slot.waiting = tokens[:decoded], tokens[decoded:]
    if drafter is None:
        return
    state = session.sections[_DRAFT]
    if state:
        drafter.context.set_state(state, slot.seq_id)
    width = drafter.context.feature_width
    rows = np.frombuffer(session.sections[_PENDING_ROWS], np.float32)
    if len(rows) % width:
        raise SessionError(f"the session's features have {len(rows)} values, rows have {width}")
    if len(rows):
        known = tokens_from_bytes(session.sections[_PENDING_TOKENS])
        drafter.observe([0, *known], rows.reshape(-1, width), slot.seq_id)  # the first row's token is behind it
    slot.follows = drafter.follows(decoded, slot.seq_id)
