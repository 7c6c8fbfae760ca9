"""Tries every architecture that llama.cpp's test-llama-archs can build as a target, and writes docs/targets.md.

    test-llama-archs -o MODELS          # from `llama_cpp_tests.py`: one tiny random model an architecture
    python scripts/sweep_targets.py MODELS docs/targets.md

Each model runs in a process of its own, so that an abort of llama.cpp is a row of the table, not the end.
What a target gives is checked in target_checks.py, drafting and verifying in target_rounds.py. Exit status 1 when
anything came out wrong.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from llama_eagle import EagleError, Model
from target_checks import check_last, check_layers, check_post_norm, check_tree
from target_rounds import check_rounds

COLUMNS = ("chain", "trees", "eagle", "eagle3", "features", "last", "post", "remark")
HEADER = """# Which architectures can be a target

Made by `scripts/sweep_targets.py` with the tiny random models of llama.cpp's own architecture test; one row a model.
A `no` is refused by name when the pair is loaded, never within a text; `WRONG` would be a text or a feature that is not
that of plain decoding.

As a target:
* `chain`, `trees`: drafts of that form are verified. An oracle that knows the plain text drafts it up to a wrong node
  at a known depth: as much as was right is accepted, and the text is that of plain decoding. The logits of a random
  tree are those of its paths.
* `EAGLE-1/2`, `EAGLE-3`: a random head made for the model drafts chains and trees, chains alone where the target takes
  no trees, by itself and with the oracle's nodes in place of its own: the same text, and every feature the head is
  given is the one of a plain decode. The head of `EAGLE-3` reads the inputs of layers 2, n/2 and n-3, or the nearest
  that a small model has.

What a head can read:
* `features`: the inputs of layers 0..n-1 are given for every token.
* `last output`: so is the output of the last layer (feature id n), checked through final norm and head, and in rounds
  as above with a head that reads it.
* `post norm`: so is the hidden state after the final norm (feature id -1), checked through the head.

| model | chain | trees | EAGLE-1/2 | EAGLE-3 | features | last output | post norm | remark |
|---|---|---|---|---|---|---|---|---|
"""


def examine(path: Path) -> dict[str, str]:
    """All checks of one model, in this process."""
    row = {**dict.fromkeys(COLUMNS, "no"), "eagle": "yes", "eagle3": "yes", "remark": ""}
    try:
        model = Model(path)
        check_layers(model, row)
        check_last(model, path, row)
        check_post_norm(model, path, row)
        check_tree(model, row)
        with tempfile.TemporaryDirectory() as folder:
            check_rounds(model, Path(folder), row)
    except EagleError as error:
        row |= dict.fromkeys(("chain", "trees", "eagle", "eagle3"), "no")
        row["remark"] = str(error).split(": ")[-1]
    return row


def examine_apart(path: Path) -> dict[str, str]:
    """The same in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--one", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2].replace("|", "/")
        return {**dict.fromkeys(COLUMNS, "WRONG"), "remark": f"process ended with {done.returncode}: {last}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    if sys.argv[1] == "--one":
        print(json.dumps(examine(Path(sys.argv[2]))))
        return 0
    models, out = Path(sys.argv[1]), Path(sys.argv[2])
    lines, wrong = [], 0
    for path in sorted(models.glob("*.gguf")):
        row = examine_apart(path)
        wrong += any(str(value).startswith("WRONG") for value in row.values())
        lines.append(f"| {' | '.join([path.stem, *(row[column] for column in COLUMNS)])} |")
        print(lines[-1], flush=True)
    out.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
