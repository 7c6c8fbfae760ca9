"""Names of hub repositories as people write them, and which of a repository's files is meant. Knows no network."""

import os.path
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import DownloadError, InputError

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([^:\s\\/][^:\s\\]*))?(?::([A-Za-z0-9_.-]+))?")
_SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.IGNORECASE)
_USUAL = ("Q4_K_M", "Q8_0")  # llama.cpp's order where no quant is named
# what lies beside models and is none: llama.cpp, common/download.cpp
_BESIDE = ("mmproj", "imatrix", "mtp-", "dflash-", "dspark-")
_HEAD = "eagle3-"
_MOST_SHOWN = 8


@dataclass(frozen=True)
class HubName:
    """OWNER/NAME, with a revision (branch, tag or commit) and a quant where they were given.

    path: the text that it was read from, where that may have meant a file or folder which is not there.
    """

    repo: str
    revision: str | None = None
    quant: str | None = None
    path: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str) -> "HubName":
        """Takes OWNER/NAME[@REVISION][:QUANT]. Raises InputError for anything else."""
        found = _NAME.fullmatch(text)
        if found is None or "--" in found[1] or ".." in text:
            raise InputError(f"{text!r} is no hub id: write OWNER/NAME, with @REVISION and :QUANT where wanted")
        return cls(found[1], found[2], found[3])

    @classmethod
    def parse_path(cls, text: str) -> "HubName":
        """As parse, of a text that may have meant a file or folder: errors will say that there is none."""
        return replace(cls.parse(text), path=text)


def is_hub_name(text: str) -> bool:
    """Whether a text can only be a hub id: no such file or folder is there, and it is spelled like one."""
    if text.lower().endswith(".gguf") or os.path.exists(text):  # Path.exists fails for long names
        return False
    try:
        HubName.parse(text)
    except InputError:
        return False
    return True


def choose_gguf(paths: Iterable[str], quant: str | None, is_draft: bool = False) -> list[str]:
    """The GGUF of a repository that llama.cpp's -hf would take, all parts of it where it is split, in order.

    quant: a file's quant in any case, else Q4_K_M, Q8_0 or the first file. is_draft: `eagle3-` files come before
    models, which else leave them aside. Follows find_best_model of llama.cpp's common/download.cpp. Raises
    DownloadError, without the repository's name, when there is none.
    """
    found = sorted(path for path in paths if path.lower().endswith(".gguf"))
    models = [path for path in found if _is_model(path)]
    heads = [path for path in found if _name(path).find(_HEAD) >= 0]
    usual = (heads or models) if is_draft else models
    first = next((path for tag in ((quant,) if quant else _USUAL) for path in usual if _has_tag(path, tag)), None)
    if first is None and not quant:
        first = next((path for path in usual if _part(path) == 1), None)
    if first is None:
        raise DownloadError(_nothing(usual, quant))
    return _parts(first, found)


def _is_model(path: str) -> bool:
    return not any(word in _name(path) for word in (*_BESIDE, _HEAD))


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _has_tag(path: str, tag: str) -> bool:
    return _part(path) == 1 and re.search(re.escape(tag) + "[.-]", path, re.IGNORECASE) is not None


def _part(path: str) -> int:
    split = _SPLIT.fullmatch(path)
    return int(split[2]) if split else 1


def _parts(first: str, paths: Sequence[str]) -> list[str]:
    split = _SPLIT.fullmatch(first)
    if split is None:
        return [first]
    wanted = [f"{split[1]}-{n:05d}-of-{split[3]}.gguf" for n in range(1, int(split[3]) + 1)]
    missing = [path for path in wanted if path not in paths]
    if missing:
        raise DownloadError(f"part {missing[0]} is not there, {len(missing)} of {len(wanted)} parts are missing")
    return wanted


def _nothing(models: Sequence[str], quant: str | None) -> str:
    if not models:
        return "it has no GGUF of a model"
    return f"it has no GGUF of quant {quant}; there are {listed([p for p in models if _part(p) == 1])}"


def listed(names: Sequence[str]) -> str:
    """The first names of a list and how many more there are, for a message."""
    shown = ", ".join(names[:_MOST_SHOWN])
    return shown + (f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")


def choose_checkpoint(paths: Iterable[str]) -> list[str] | None:
    """Config and weights of a checkpoint, safetensors before pickles, or None. Only the top folder is looked at."""
    top = {path for path in paths if "/" not in path}
    if "config.json" not in top:
        return None
    for index, single, ending in (
        ("model.safetensors.index.json", "model.safetensors", ".safetensors"),
        ("pytorch_model.bin.index.json", "pytorch_model.bin", ".bin"),
    ):
        weights = sorted(path for path in top if path.endswith(ending))
        if index in top:
            return ["config.json", index, *(path for path in weights if path.startswith(single.rsplit(".", 1)[0]))]
        if single in top:
            return ["config.json", single]
        if weights and ending == ".safetensors":  # other .bin files are optimizers and arguments
            return ["config.json", *weights]
    return None
