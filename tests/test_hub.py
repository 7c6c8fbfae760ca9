"""hub.py with the real client and a hub on the loopback: what is fetched, what is kept, and every way to fail."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub_server import GATED, HubServer, Repo
from llama_eagle.conversion.inputs import find_checkpoint
from llama_eagle.errors import DownloadError, EagleError, InputError
from llama_eagle.hub import client as hub_client
from llama_eagle.hub import fetch as hub
from llama_eagle.model_files import draft_file

BIG = os.urandom(300_000)
CONFIG = b'{"architectures": ["LlamaForCausalLM"]}'
QUANTS = {"m-Q8_0.gguf": b"eight", "m-Q4_K_M.gguf": b"four", "mmproj-Q4_K_M.gguf": b"eyes", "README.md": b"#"}


@pytest.fixture
def server() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def cache(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # huggingface_hub waits a second before it resumes
    return tmp_path / "hub"


def refused(call: object, *arguments: object) -> str:
    """The message of the error that a call raises: one line."""
    with pytest.raises(DownloadError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_target_by_quant(server: HubServer) -> None:
    server.repos["o/m"] = Repo(QUANTS)
    assert hub.fetch_target("o/m").read_bytes() == b"four"
    assert hub.fetch_target("o/m:q8_0").read_bytes() == b"eight"
    assert hub.fetch_target("o/m@main:Q8_0").name == "m-Q8_0.gguf"
    asked = list(server.asked)
    hub.fetch_target("o/m")
    assert server.asked[len(asked) :] == ["GET /api/models/o/m"]  # what is in the cache is not asked for again
    assert not server.bodies("README.md")


def test_all_parts_of_a_split_target(server: HubServer) -> None:
    parts = {f"Q4_0/m-Q4_0-0000{n}-of-00003.gguf": bytes([n]) for n in (1, 2, 3)}
    server.repos["o/m"] = Repo(parts)
    path = hub.fetch_target("o/m")
    assert path.name == "m-Q4_0-00001-of-00003.gguf"
    assert sorted(file.read_bytes() for file in path.parent.iterdir()) == [b"\1", b"\2", b"\3"]
    del server.repos["o/m"].files["Q4_0/m-Q4_0-00002-of-00003.gguf"]
    assert "00002-of-00003" in refused(hub.fetch_target, "o/m:Q4_0")


def test_a_checkpoint_is_config_and_weights_only(server: HubServer) -> None:
    files = {"config.json": CONFIG, "model.safetensors": b"s", "pytorch_model.bin": b"p", "tokenizer.json": b"t"}
    server.repos["o/head"] = Repo(files, ["license:apache-2.0"])
    folder = hub.fetch_checkpoint("o/head")
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert hub.head_card("o/head") == hub.HeadCard("o/head", len(CONFIG) + 1, "apache-2.0")
    server.repos["o/old"] = Repo({"config.json": CONFIG, "pytorch_model.bin": b"p", "training_args.bin": b"x"})
    assert {file.name for file in hub.fetch_checkpoint("o/old").iterdir()} == {"config.json", "pytorch_model.bin"}


def test_a_checkpoint_in_shards(server: HubServer) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": bytes([n]) for n in (1, 2)}
    server.repos["o/head"] = Repo({"config.json": CONFIG, "model.safetensors.index.json": b"{}", **shards})
    assert len(list(hub.fetch_checkpoint("o/head").iterdir())) == 4


def test_a_draft_that_is_a_gguf(server: HubServer) -> None:
    server.repos["o/head"] = Repo({"eagle3-m-Q8_0.gguf": b"head", "m-Q8_0.gguf": b"target"})
    assert hub.fetch_checkpoint("o/head").read_bytes() == b"head"
    assert hub.fetch_target("o/head").read_bytes() == b"target"


def test_the_config_of_a_target(server: HubServer) -> None:
    server.repos["o/m"] = Repo({"config.json": CONFIG, "model.safetensors": BIG})
    assert [file.name for file in hub.fetch_target_config("o/m").iterdir()] == ["config.json"]
    server.repos["o/g"] = Repo(QUANTS)
    assert hub.fetch_target_config("o/g").name == "m-Q4_K_M.gguf"


def test_a_lost_connection_is_taken_up_again(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)
    server.cut, server.cuts = 100_000, 1
    assert hub.fetch_target("o/m").read_bytes() == BIG
    assert server.bodies("m.gguf")[1].endswith("bytes=100000-")


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent on Windows")
def test_ctrl_c_leaves_what_the_next_run_goes_on_with(server: HubServer, cache: Path) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    server.stall = 200_000
    code = "from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = 50_000\n"
    code += "from llama_eagle.hub import fetch as hub; hub.fetch_target('o/m')"
    environment = {**os.environ, "HF_HUB_CACHE": str(cache)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE) as process:
        assert server.stalled.wait(60)
        part = next(iter(cache.rglob("*.incomplete")))
        while part.stat().st_size < 100_000 and process.poll() is None:
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in err
    kept = part.stat().st_size
    assert 0 < kept <= 200_000
    server.stall = 0
    assert hub.fetch_target("o/m").read_bytes() == BIG
    assert server.bodies("m.gguf")[-1].endswith(f"bytes={kept}-")
    assert not part.exists()


def test_a_wrong_hash_is_not_kept(server: HubServer, cache: Path) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    server.damaged = True
    assert "sha256" in refused(hub.fetch_target, "o/m")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size == len(BIG)]
    server.damaged = False
    assert hub.fetch_target("o/m").read_bytes() == BIG


def test_a_damaged_beginning_is_fetched_anew(server: HubServer, cache: Path) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    sha = hub.open_repo(hub.HubName("o/m")).files["m.gguf"].sha256
    part = cache / "models--o--m" / "blobs" / f"{sha}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(1000))
    assert hub.fetch_target("o/m").read_bytes() == BIG
    assert len(server.bodies("m.gguf")) == 2


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [(401, GATED, "accept its terms"), (403, GATED, "accept its terms"), (401, "", "HF_TOKEN"), (403, "", "HF_TOKEN")],
)
def test_a_repository_that_is_not_for_everyone(server: HubServer, status: int, code: str, advice: str) -> None:
    server.repos["o/m"] = Repo(QUANTS, refused=(status, code))
    message = refused(hub.fetch_target, "o/m")
    assert advice in message
    assert "HF_TOKEN" in message


def test_what_is_not_there(server: HubServer) -> None:
    server.repos["o/m"] = Repo(QUANTS)
    message = refused(hub.fetch_target, "o/m:Q2_K")
    assert "Q2_K" in message
    assert "m-Q8_0.gguf" in message
    assert "mmproj" not in message
    assert "o/none" in refused(hub.fetch_target, "o/none")
    assert "revision" in refused(hub.fetch_target, "o/m@nowhere")
    server.repos["o/text"] = Repo({"README.md": b"#", "config.json": CONFIG})
    assert "README.md" in refused(hub.fetch_checkpoint, "o/text")
    with pytest.raises(InputError, match="OWNER/NAME"):
        hub.fetch_target("just-a-name")


def test_a_name_that_may_have_meant_a_path(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["o/m"] = Repo(QUANTS)
    here = "heads/nope: no such file or folder here; as a hub id: "
    assert refused(hub.fetch_checkpoint, "heads/nope").startswith(f"{here}{server.url} has no repository heads/nope")
    assert refused(hub.fetch_checkpoint, "heads/nope", True).startswith(f"{here}heads/nope is not in the cache")
    assert refused(find_checkpoint, "heads/nope").startswith(here)
    assert refused(draft_file, "heads/nope", None).startswith(here)
    assert refused(hub.head_card, "heads/nope:Q4_0").startswith("heads/nope:Q4_0: no such file")
    assert "folder here" not in refused(hub.fetch_target, hub.HubName("heads/nope"))  # -hf names no path
    assert "folder here" not in refused(hub.fetch_target, "o/m@nowhere")  # there is such a repository
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused(hub.fetch_target, "heads/nope").startswith(f"{here}cannot reach http://127.0.0.1:9 for heads/nope")


def test_a_hub_in_trouble(server: HubServer) -> None:
    server.repos["o/m"] = Repo(QUANTS, refused=(500, ""))
    assert "500" in refused(hub.fetch_target, "o/m")


def test_no_network(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["o/m"] = Repo(QUANTS)
    hub.fetch_target("o/m")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert hub.fetch_target("o/m").read_bytes() == b"four"  # the cache does
    assert "127.0.0.1:9" in refused(hub.fetch_target, "o/other")
    message = refused(hub.fetch_target, "o/m:Q8_0")
    assert "in the cache" in message


def test_a_hub_that_says_nothing(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "SECONDS", 0.2)
    monkeypatch.setattr(server, "answer", lambda request: server._closed.wait())
    assert "no answer within" in refused(hub.fetch_target, "o/m")


@pytest.mark.parametrize("variable", [False, True])
def test_offline(server: HubServer, monkeypatch: pytest.MonkeyPatch, variable: bool) -> None:
    server.repos["o/m"] = Repo(QUANTS)
    hub.fetch_target("o/m")
    server.asked.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", variable)
    assert hub.fetch_target("o/m", not variable).read_bytes() == b"four"
    assert ("HF_HUB_OFFLINE" if variable else "--offline") in refused(hub.fetch_target, "o/new", not variable)
    assert not server.asked


def test_a_full_disk(server: HubServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    usage = SimpleNamespace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        assert "HF_HOME" in refused(hub.fetch_target, "o/m")
    full = OSError(errno.ENOSPC, "No space left on device")

    def write(*_: object, **__: object) -> None:
        raise full

    monkeypatch.setattr("huggingface_hub.file_download.http_get", write)
    message = refused(hub.fetch_target, "o/m")
    assert "full" in message
    assert str(cache) in message


def test_a_cache_that_is_a_file(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["o/m"] = Repo({"m.gguf": BIG})
    (tmp_path / "file").touch()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    assert "set HF_HOME" in refused(hub.fetch_target, "o/m")


@pytest.mark.parametrize("setting", [("HF_ENDPOINT", "http://[::x"), ("HF_HUB_DOWNLOAD_TIMEOUT", "soon")])
def test_an_environment_that_makes_no_sense(setting: tuple[str, str]) -> None:
    code = "from llama_eagle.hub import fetch; fetch.fetch_target('o/m')"
    environment = {**os.environ, setting[0]: setting[1]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "DownloadError: huggingface_hub cannot read the environment" in last
    assert setting[0] in last


def test_names_that_would_leave_the_cache(server: HubServer) -> None:
    server.repos["o/m"] = Repo({"../../m-Q4_K_M.gguf": BIG})
    assert "outside the cache" in refused(hub.fetch_target, "o/m")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a/b/c",
        "../x",
        "a/..",
        "a/b:",
        "a/b@",
        "a b/c",
        "a/b:Q4/../x",
        "-a/b",
        "a/b@../../x",
        "a/b@/x",
        "a--b/c",
    ],
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(EagleError):
        hub.fetch_target(text)
