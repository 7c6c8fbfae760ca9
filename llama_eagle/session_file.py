"""Files of saved sessions: named binary sections behind a header, whole or refused. docs/sessions.md has the format.

Knows nothing of what the sections hold, and opens no native library: nothing reaches llama.cpp from here.
"""

import hashlib
import importlib
import json
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .cache import scratch_dir
from .context_params import ContextParams
from .errors import InputError, SessionError

MAGIC = b"EAGLESES"
VERSION = 1
MOST_HEADER = 1 << 20  # bytes
MOST_SECTIONS = 64
_PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the header
_DIGEST = 32  # bytes of a SHA-256
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_MUST_MATCH = ("type_k", "type_v", "kv_unified", "swa_full")

Setting = str | int | bool | None


def build_stamp() -> str:
    """llama.cpp's commit and the patches of this build, or "unknown" where the build recorded neither."""
    try:
        build: Any = importlib.import_module("llama_eagle._build")
    except ImportError:
        return "unknown"
    patches = build.PATCHES if isinstance(build.PATCHES, str) else " ".join(build.PATCHES)
    return f"{build.LLAMA_CPP_COMMIT} {hashlib.sha256(patches.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class SessionHeader:
    """Whose state it is. model, draft: file_identity() of their GGUFs. settings: all that must be equal to restore it;
    llama_cpp: build_stamp(), as the state's layout is the build's."""

    arch: str
    model: str
    draft: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    llama_cpp: str = field(default_factory=build_stamp)

    def check(self, found: "SessionHeader") -> None:
        """Raises SessionError that names the first thing in which another header differs."""
        pairs: list[tuple[str, Setting, Setting]] = [
            ("architecture", self.arch, found.arch),
            ("model", self.model, found.model),
            ("draft", self.draft, found.draft),
            ("build of llama.cpp", self.llama_cpp, found.llama_cpp),
        ]
        names = sorted({*self.settings, *found.settings})
        pairs += [(name, self.settings.get(name), found.settings.get(name)) for name in names]
        for name, here, there in pairs:
            if here != there or type(here) is not type(there):
                raise SessionError(f"the session is of another {name}: {_short(there)}, here it is {_short(here)}")


@dataclass(frozen=True)
class Session:
    """sections: name -> bytes, for example target, draft, pending, sampling, prompt, tokens."""

    header: SessionHeader
    sections: Mapping[str, bytes]


def _short(value: Setting) -> str:
    return "none" if value is None else str(value)[:40]


def settings_of(params: ContextParams) -> dict[str, Setting]:
    """Settings of a context that its state depends on; n_seq_max only where each sequence has a cache of its own.

    Flash attention counts too, as it decides on V's layout, but "auto" hides what it became: llama.cpp refuses then.
    """
    settings: dict[str, Setting] = {name: getattr(params, name) for name in _MUST_MATCH}
    return settings if params.kv_unified else {**settings, "n_seq_max": params.n_seq_max}


def write_session(path: str | os.PathLike[str], session: Session) -> None:
    """Writes a session; the file appears whole or not at all, in place of an older one.

    Raises InputError for names of sections other than [a-z][a-z0-9_]*, more than 64 of them or too large a header, and
    SessionError where the file cannot be written.
    """
    target = Path(path)
    for name, data in session.sections.items():
        if not _NAME.fullmatch(name) or not isinstance(data, bytes):
            raise InputError(f"section {name!r} of {type(data).__name__}: a lower-case name and bytes are needed")
    lengths = [[name, len(data)] for name, data in session.sections.items()]
    fields = {**vars(session.header), "settings": dict(session.header.settings), "sections": lengths}
    header = json.dumps(fields, allow_nan=False).encode()
    if len(header) > MOST_HEADER or len(lengths) > MOST_SECTIONS:
        raise InputError(f"a header of {len(header)} bytes and {len(lengths)} sections is too large")
    try:
        with scratch_dir(target) as folder:
            with (folder / target.name).open("wb") as file:
                digest = hashlib.sha256()
                for part in (_PREFIX.pack(MAGIC, VERSION, len(header)), header, *session.sections.values()):
                    digest.update(part)
                    file.write(part)
                file.write(digest.digest())
                file.flush()
                os.fsync(file.fileno())
            os.replace(folder / target.name, target)
    except OSError as error:
        raise SessionError(f"cannot write the session {target}: {error.strerror or error}") from None


def read_session(path: str | os.PathLike[str], expected: SessionHeader | None = None) -> Session:
    """Reads a session. expected: what its header must be, checked before the sections are read.

    Raises SessionError, one line, for a file that cannot be read, is no session, is of another version, was cut or
    damaged, or is not `expected`. No more memory is taken than the file has bytes.
    """
    try:
        with Path(path).open("rb") as file:
            return _read(file, expected)
    except OSError as error:
        raise SessionError(f"cannot read the session {path}: {error.strerror or error}") from None
    except SessionError as error:
        raise SessionError(f"{path}: {error}") from None


def _read(file: BinaryIO, expected: SessionHeader | None) -> Session:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if not prefix.startswith(MAGIC):
        raise SessionError("it is no saved session: it does not begin like one")
    if len(prefix) < _PREFIX.size:
        raise SessionError("it was cut")
    _, version, length = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise SessionError(f"its format has version {version}, this package reads version {VERSION}: save it anew")
    if length > min(MOST_HEADER, size):
        raise SessionError(f"its header claims {length} bytes: it was cut or damaged")
    raw = file.read(length)
    header, lengths = _header(raw)
    wanted = _PREFIX.size + length + sum(count for _, count in lengths) + _DIGEST
    if wanted != size:
        raise SessionError(f"it has {size} bytes where its header claims {wanted}: it was cut or damaged")
    if expected is not None:
        expected.check(header)
    digest = hashlib.sha256(prefix + raw)
    sections = {name: _section(file, count, digest) for name, count in lengths}
    if file.read() != digest.digest():
        raise SessionError("it is damaged: its checksum does not fit")
    return Session(header, sections)


def _section(file: BinaryIO, count: int, digest: "hashlib._Hash") -> bytes:
    data = file.read(count)
    digest.update(data)
    return data


def _header(raw: bytes) -> tuple[SessionHeader, list[tuple[str, int]]]:
    try:
        given = json.loads(raw)
        lengths = [(name, count) for name, count in given.pop("sections")]
        header = SessionHeader(**given)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SessionError("its header is damaged") from None
    texts = (header.arch, header.model, header.llama_cpp, *header.settings) if _is_plain(header.settings) else (None,)
    if not all(isinstance(text, str) for text in texts) or not isinstance(header.draft, str | None):
        raise SessionError("its header is damaged")
    for name, count in lengths:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or type(count) is not int or count < 0:
            raise SessionError("its list of sections is damaged")
    if len(lengths) > MOST_SECTIONS or len(dict(lengths)) != len(lengths):
        raise SessionError("its list of sections is damaged")
    return header, lengths


def _is_plain(settings: Any) -> bool:
    return isinstance(settings, dict) and all(isinstance(value, str | int | None) for value in settings.values())
