"""offload.py: what pairs take of devices, and what is asked of a machine with GPUs of any size."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llama_eagle import Engine, InputError
from llama_eagle import offload as offload_module
from llama_eagle.devices import Device, devices
from llama_eagle.gpu_layers import ALL, RESERVE, Layers
from llama_eagle.offload import Part, device_bytes, offload
from tiny import TinyPair

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("requires_native")]

CPU = Device("CPU", "a processor", "CPU", 1 << 34, 1 << 34)
GPU = Device("CUDA0", "a card", "GPU", 1 << 34, 1 << 34)
MIB = 1 << 20
PARAMS = {"n_ctx": 512, "n_threads": 1}


def parts(pair: TinyPair) -> tuple[Part, Part]:
    return Part(pair.target.path, PARAMS, tuple(pair.head.layers)), Part(pair.path, PARAMS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends devices, and that each layer, output and head takes a MiB of the last device."""

    def pretend(*found: Device) -> list[tuple[int, ...]]:
        asked: list[tuple[int, ...]] = []

        def used(*loads: tuple[Part, int]) -> list[int]:
            asked.append(tuple(layers for _, layers in loads))
            counts = [limit if layers == ALL else layers for (_, layers), limit in zip(loads, (7, 2), strict=False)]
            return [*[0] * (len(found) - 1), sum(counts) * MIB]

        monkeypatch.setattr(offload_module, "devices", lambda: list(found))
        monkeypatch.setattr(offload_module, "device_bytes", used)
        return asked

    return pretend


def test_the_devices_of_this_machine() -> None:
    found = devices()
    assert any(device.kind == "CPU" for device in found)
    assert all(0 <= device.free <= device.total for device in found)


def test_a_pair_is_laid_out_without_being_loaded(tiny_pair: TinyPair) -> None:
    target, head = parts(tiny_pair)
    used = device_bytes((target, ALL), (head, ALL))
    assert len(used) == len(devices())
    assert device_bytes((target, 0))[0] <= used[0]


def test_a_file_that_does_not_load(tiny_pair: TinyPair, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match=r"nowhere\.gguf"):
        device_bytes((Part(tmp_path / "nowhere.gguf", PARAMS), ALL))
    target, head = parts(tiny_pair)
    with pytest.raises(InputError, match="load it with its target"):
        device_bytes((head, ALL))
    with pytest.raises(InputError, match="feature 99 is not in"):
        device_bytes((replace(target, features=(99,)), ALL))
    assert not caplog.records  # loading says it, once


def test_without_a_gpu_nothing_is_asked(tiny_pair: TinyPair, machine: Any) -> None:
    asked = machine(CPU)
    for given in ("auto", -1, 0):
        layers, text = offload(given, 6, *parts(tiny_pair))
        assert (layers.target, text) == (0 if given == 0 else ALL, "")
    assert asked == []


def test_layers_without_a_gpu_are_an_error(tiny_pair: TinyPair, machine: Any) -> None:
    machine(CPU)
    with pytest.raises(InputError, match=r"\(-ngl\) is 20, .* finds a GPU: .*DGGML_CUDA=ON\" pip install \."):
        offload(20, 6, *parts(tiny_pair))
    machine(CPU, GPU)
    assert offload(20, 6, *parts(tiny_pair)) == (Layers(20, 20, 20), "")


def test_free_memory_decides(tiny_pair: TinyPair, machine: Any) -> None:
    pair = parts(tiny_pair)
    for free, layers, words in [
        (9, Layers(), ""),
        (8, Layers(6, ALL, ALL), "head takes GPU memory"),
        (4, Layers(2, ALL, 4), "2 of 7 layers fit"),
        (1, Layers(1, 0, 1), "head finds no GPU memory"),
    ]:
        machine(CPU, replace(GPU, free=RESERVE + free * MIB))
        got, text = offload("auto", 6, *pair)
        assert got == layers
        assert words in text
        assert bool(words) == bool(text)
    machine(CPU, replace(GPU, free=RESERVE + 4 * MIB))
    assert offload("auto", 6, pair[0], None)[0] == Layers(4, ALL, 4)


def test_a_gpu_that_does_not_say_what_is_free(tiny_pair: TinyPair, machine: Any) -> None:
    asked = machine(CPU, replace(GPU, free=0, total=0))
    assert offload("auto", 6, *parts(tiny_pair)) == (Layers(), "")
    assert asked == []


def test_a_pair_that_cannot_be_laid_out_is_loaded_all_the_same(
    tiny_pair: TinyPair, machine: Any, monkeypatch: Any
) -> None:
    machine(CPU, GPU)

    def broken(*loads: Any) -> list[int]:
        raise InputError("cannot be laid out")

    monkeypatch.setattr(offload_module, "device_bytes", broken)
    assert offload("auto", 6, *parts(tiny_pair)) == (Layers(), "")


def test_the_engine_asks_with_what_it_will_load(tiny_pair: TinyPair, machine: Any) -> None:
    """And goes on, here without a GPU, with as many layers as it was told; the note is kept for the run."""
    asked = machine(CPU, replace(GPU, free=RESERVE + 4 * MIB))
    with Engine(tiny_pair.target.path, tiny_pair.path, n_ctx=512, n_threads=1, spec="tree") as engine:
        assert asked[0] == (ALL, ALL)
        assert "head takes GPU memory from the target: 2 of 7" in engine.pair.gpu_note
    with Engine(tiny_pair.target.path, tiny_pair.path, n_ctx=512, n_threads=1, spec="off") as engine:
        assert engine.pair.gpu_note == "4 of 7 layers fit into the free GPU memory"
