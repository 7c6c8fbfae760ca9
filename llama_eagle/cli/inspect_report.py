"""The report of `llama-eagle inspect`: one document for --json, and the same in lines for a person. Reads no file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..fit import target_limits
from ..head_info import feature_meanings

if TYPE_CHECKING:
    from ..fit import Fit
    from ..head_info import HeadInfo, Sizes
    from ..target_side import TargetSide
    from ..vocabulary import Vocabulary

_NO_HEAD = (
    "give it with -m; its draft head is an EAGLE checkpoint that was trained for it, "
    "made a GGUF by `llama-eagle convert CHECKPOINT --target {file} -o head.gguf`"
)


def draft_document(path: Path, head: HeadInfo, target: TargetSide | None, found: Fit | None) -> dict[str, Any]:
    """What is known of a head, and whether it fits."""
    names = feature_meanings(head.features, None if target is None else target.n_layer)
    return {
        "file": str(path),
        "kind": "draft",
        "name": head.name,
        "arch": head.arch,
        "version": head.version,
        "layout": head.layout,
        "sizes": asdict(head.sizes),
        "context": head.context,
        "features": [{"id": i, "meaning": name} for i, name in zip(head.features, names, strict=True)],
        "feature_rule": head.rule,
        "target_hidden": head.target_hidden,
        "vocabulary": {
            **_vocabulary(head.n_vocab, head.vocabulary),
            "draft": head.n_draft,
            "mapped": bool(head.map_end),
        },
        "rope": head.rope,
        "switches": list(head.switches),
        "choices": list(head.choices),
        "shares": list(head.shares),
        "leftovers": list(head.leftovers),
        "target": None if target is None else target.name,
        "fits": None if found is None else found.fits,
        "problems": list(head.problems if found is None else found.problems),
        "notes": list(head.notes if found is None else found.notes),
    }


def target_document(path: Path, side: TargetSide, sizes: Sizes, target: str | None) -> dict[str, Any]:
    """What is known of a model that is no draft. target: what it was to be compared with."""
    problems = (
        [] if target is None else [f"{path.name} is no draft head ({side.arch}): there is nothing to fit {target}"]
    )
    return {
        "file": str(path),
        "kind": "target",
        "name": side.name,
        "arch": side.arch,
        "version": None,
        "layout": None,
        "sizes": {**asdict(sizes), "layers": side.n_layer},
        "context": side.n_ctx,
        "vocabulary": _vocabulary(side.n_vocab, side.vocabulary),
        "target": target,
        "fits": None if target is None else False,
        "problems": problems,
        "notes": [*target_limits(side.arch).values(), _NO_HEAD.format(file=path)],
    }


def refused_document(path: Path, reason: str, target: str | None) -> dict[str, Any]:
    """A checkpoint that cannot be converted, with the converter's reason."""
    return {
        "file": str(path),
        "kind": "draft",
        "name": path.resolve().name,
        "arch": None,
        "version": None,
        "layout": None,
        "target": target,
        "fits": None if target is None else False,
        "problems": [f"it cannot be converted: {reason}"],
        "notes": [],
    }


def _vocabulary(size: int | None, vocabulary: Vocabulary | None) -> dict[str, Any]:
    kind, pre = (None, None) if vocabulary is None else (vocabulary.kind, vocabulary.pre or None)
    return {"size": size, "tokenizer": kind, "pre": pre}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """The document for a person: a title, one line a subject, then problems and notes.

    Strings come from files: what could steer a terminal is left out.
    """
    for line in _lines(document):
        yield "".join(letter if letter.isprintable() else "?" for letter in line)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['name']}: {_title(document)}"
    for name, text in _rows(document):
        yield f"  {name:11}{text}"
    yield from (f"problem: {text}" for text in document["problems"])
    yield from (f"note: {text}" for text in document["notes"])


def _title(document: dict[str, Any]) -> str:
    if document["kind"] == "target":
        return f"a target ({document['arch']})"
    if document["arch"] is None:
        return "a checkpoint that cannot be converted"
    layout = f", {document['layout']} layout" if document["layout"] else ""
    return f"an EAGLE-{document['version']} draft head ({document['arch']}{layout})"


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "sizes" in document:
        yield "network", _network(document["sizes"])
        yield "file", _file(document["sizes"])
        yield "vocabulary", _words(document["vocabulary"])
        yield "context", f"{document['context'] or 'unknown'}"
    if "features" in document:
        yield "features", _features(document)
        yield "rope", _rope(document["rope"])
        for key in ("switches", "shares", "leftovers", "choices"):
            if document[key]:
                yield key, ", ".join(document[key])
    answer = {True: "yes", False: "no", None: "not asked: give the target with -m"}[document["fits"]]
    if document["kind"] == "draft":
        yield "fits", f"{document['target']}: {answer}" if document["target"] else answer


def _network(sizes: dict[str, Any]) -> str:
    heads = f"{sizes['heads']} heads ({sizes['kv_heads']} of keys) of {sizes['head_size']}"
    layers = f"{sizes['layers']} layer{'' if sizes['layers'] == 1 else 's'}"
    return f"{layers}, hidden {sizes['hidden']}, ffn {sizes['ffn']}, {heads}".replace("None", "?")


def _file(sizes: dict[str, Any]) -> str:
    types = ", ".join(f"{count} {name}" for name, count in sizes["types"].items())
    return f"{sizes['parameters'] / 1e6:.1f}M parameters, {sizes['bytes'] / 2**20:.1f} MiB, tensors: {types}"


def _words(vocabulary: dict[str, Any]) -> str:
    text = f"{vocabulary['size'] or '?'} tokens"
    if vocabulary.get("mapped"):
        text += f", of which it drafts {vocabulary['draft']} (d2t)"
    kinds = [kind for kind in (vocabulary["tokenizer"], vocabulary["pre"]) if kind]
    return f"{text}, tokenizer {' / '.join(kinds)}" if kinds else f"{text}, no tokenizer"


def _rope(rope: dict[str, Any]) -> str:
    numbers = {key: "" if rope[key] is None else f"{key} {rope[key]:g}" for key in ("base", "factor")}
    return ", ".join(part for part in (numbers["base"], f"scaling {rope['scaling']}", numbers["factor"]) if part)


def _features(document: dict[str, Any]) -> str:
    text = "; ".join(feature["meaning"] for feature in document["features"]) or "unknown"
    rule = f" ({document['feature_rule']})" if document["feature_rule"] else ""
    return f"{text}, {document['target_hidden'] or '?'} numbers each{rule}"
