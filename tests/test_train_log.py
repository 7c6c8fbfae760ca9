"""log.py and picture.py: what is appended is read, and drawn."""

import pytest

from llama_eagle.train import log

ROW = {
    "step": 3, "rows": 900, "seconds": 1.25, "unroll": 2, "loss": 4.5, "rows_per_s": 700.0, "held_out_loss": 5.0,
    "tokens_per_step": 1.5,
}  # fmt: skip


def test_lines_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "log.csv"
    assert log.read(path) == []
    log.append(path, ROW, [0.5, 0.25])
    log.append(path, {**ROW, "step": 4, "other": 1}, [0.75, 0.5])
    assert log.read(path) == [
        {**ROW, "accept_1": 0.5, "accept_2": 0.25},
        {**ROW, "step": 4, "accept_1": 0.75, "accept_2": 0.5},
    ]
    assert path.read_text().count("held_out_loss") == 1


@pytest.mark.parametrize("lines", [0, 1, 5])
def test_a_picture_is_drawn(tmp_path, lines):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    from llama_eagle.train.picture import draw  # noqa: PLC0415 - as above

    for step in range(lines):
        log.append(tmp_path / "log.csv", {**ROW, "rows": 900 * step}, [0.1 * step, 0.05 * step])
    draw(str(tmp_path / "log.png"), tmp_path / "log.csv")
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")
