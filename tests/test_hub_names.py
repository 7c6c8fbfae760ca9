"""hub_names.py: ids as people write them, and the file that llama.cpp's -hf would take."""

from pathlib import Path

import pytest

from llama_eagle.errors import DownloadError
from llama_eagle.hub.names import HubName, choose_checkpoint, choose_gguf, is_hub_name


def test_an_id_in_full() -> None:
    assert HubName.parse("o/n") == HubName("o/n")
    assert HubName.parse("o/n@v1.0:Q4_K_M") == HubName("o/n", "v1.0", "Q4_K_M")
    assert HubName.parse("o/n@refs/pr/3") == HubName("o/n", "refs/pr/3")


def test_files_and_folders_come_before_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("models/head")
    (tmp_path / "models" / "head").mkdir(parents=True)
    assert not is_hub_name("models/head")
    assert not any(map(is_hub_name, ("models/x.gguf", "./a/b", "/a/b", "a", "a/b/c", "~/a")))


@pytest.mark.parametrize(
    ("paths", "quant", "chosen"),
    [
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], None, "a-Q4_K_M.gguf"),
        (["a-Q8_0.gguf", "a-Q2_K.gguf"], None, "a-Q8_0.gguf"),
        (["b-F16.gguf", "a-Q2_K.gguf"], None, "a-Q2_K.gguf"),
        (["a-Q8_0.gguf", "a.Q4_K_M.gguf"], "q4_k_m", "a.Q4_K_M.gguf"),
        (["a-Q4_K_M.gguf", "a-UD-Q4_K_XL.gguf"], "UD-Q4_K_XL", "a-UD-Q4_K_XL.gguf"),
        (["eagle3-a-Q4_K_M.gguf", "mtp-a-Q4_K_M.gguf", "a-Q2_K.gguf"], None, "a-Q2_K.gguf"),
        (["BF16/a-BF16-00001-of-00001.gguf"], "bf16", "BF16/a-BF16-00001-of-00001.gguf"),
    ],
)
def test_the_gguf_of_a_quant(paths: list[str], quant: str | None, chosen: str) -> None:
    assert choose_gguf(paths, quant) == [chosen]


def test_no_gguf() -> None:
    with pytest.raises(DownloadError, match="no GGUF"):
        choose_gguf(["mmproj-a.gguf", "config.json"], None)
    with pytest.raises(DownloadError, match="F16; there are"):
        choose_gguf(["a-Q8_0.gguf"], "F16")


def test_checkpoint_files() -> None:
    assert choose_checkpoint(["model.safetensors"]) is None
    assert choose_checkpoint(["config.json", "x/model.safetensors"]) is None
    assert choose_checkpoint(["config.json", "a.safetensors"]) == ["config.json", "a.safetensors"]
    assert choose_checkpoint(["config.json", "optimizer.bin"]) is None
