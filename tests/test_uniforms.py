"""The random numbers: SplitMix64's published stream, the native one's twin, and evenly spread."""

import numpy as np
import pytest

from llama_eagle.errors import InputError
from llama_eagle.uniforms import ACCEPT, DRAFT, Uniforms, _mix, step_uniform, uniform


def test_the_mixer_is_splitmix64() -> None:
    """The first outputs of SplitMix64 started at 1234567, as its authors' code prints them."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    gamma = 0x9E3779B97F4A7C15
    assert [_mix((1234567 + (i + 1) * gamma) & (2**64 - 1)) for i in range(5)] == known


def test_the_stream_counts_emitted_tokens() -> None:
    stream = Uniforms(7)
    assert [stream.random() for _ in range(5)] == [uniform(7, i) for i in range(5)]
    assert stream.index == 5


def test_numbers_are_spread_evenly_over_indices_and_seeds() -> None:
    for numbers in ([uniform(3, i) for i in range(20000)], [uniform(seed, 1) for seed in range(20000)]):
        assert 0 <= min(numbers) <= max(numbers) < 1
        counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
        assert ((counts - 400) ** 2 / 400).sum() < 96  # chi-square of 49 degrees of freedom, p = 1e-4
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_streams_of_steps_share_no_number() -> None:
    numbers = [uniform(5, i) for i in range(4000)]
    for stream in (DRAFT, ACCEPT):
        numbers += [step_uniform(5, stream, emitted, number) for emitted in range(200) for number in range(20)]
    assert len(set(numbers)) == len(numbers) == 12000
    assert abs(np.corrcoef(numbers[4000:8000], numbers[8000:])[0, 1]) < 0.06


@pytest.mark.native
@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 1])
def test_the_native_stream_is_the_same(seed: int, requires_native) -> None:
    for index in (0, 1, 2, 1000, 2**40):
        assert requires_native.C.eagle_sampler_uniform(seed, index) == uniform(seed, index)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, None, True])
def test_wrong_seeds(seed) -> None:
    with pytest.raises(InputError, match="seed"):
        Uniforms(seed)
