"""rope.py: every spelling of a config, and the divisors of frequencies by the published rules."""

import math

import numpy as np
import pytest

from llama_eagle.conversion.rope import Llama3, Rope, Yarn, read_rope
from llama_eagle.errors import CheckpointError
from reference import rope_divisors

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}


def read(**config):
    notes = []
    return read_rope({"rope_theta": 500.0, "max_position_embeddings": 2048, **config}, notes), notes


def test_spellings_of_type_and_base():
    assert read() == (Rope("default", 500.0), [])
    assert read(rope_scaling={"rope_type": "default"})[0] == Rope("default", 500.0)
    assert read(rope_scaling={"type": "linear", "factor": 4})[0] == Rope("linear", 500.0, 4.0)
    expected = Rope("llama3", 7.0, scaling=Llama3(8.0, 1.0, 4.0, 8192))
    assert read(rope_parameters={"rope_type": "llama3", "rope_theta": 7, **LLAMA3})[0] == expected
    assert read(rope_theta=None, rope_parameters={"full_attention": {"rope_theta": 9}})[0].theta == 9.0
    assert read(partial_rotary_factor=0.5)[0].rotated(16) == 8
    rope, notes = read(rope_theta=None)
    assert rope.theta == 10000.0
    assert "no rope_theta" in notes[0]


def test_dynamic_and_mrope_are_plain_and_say_so():
    rope, notes = read(rope_scaling={"type": "dynamic", "factor": 2.0})
    assert (rope.factor, rope.divisors(16)) == (1.0, None)
    assert "dynamic" in notes[0]
    rope, notes = read(rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]})
    assert (rope, "mrope" in notes[0]) == (Rope("default", 500.0), True)
    assert read(rope_scaling={"rope_type": "default", "mrope_section": [2, 3, 3]})[0] == rope


def test_llama3_divisors_are_those_of_transformers():
    rope = read(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3})[0]
    expected = rope_divisors({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 128)
    np.testing.assert_allclose(rope.divisors(128), expected, rtol=1e-6)
    assert (expected[0], expected[-1]) == (1.0, 8.0)


def yarn_divisor(index, dim, theta, settings):
    """Section 3.2 of YaRN (arXiv 2309.00071), bounds rounded outwards as in Transformers."""
    bounds = []
    for turns in (settings.get("beta_fast", 32), settings.get("beta_slow", 1)):
        wave = settings["original_max_position_embeddings"] / (turns * 2 * math.pi)
        bounds.append(dim * math.log(wave) / (2 * math.log(theta)))
    if settings.get("truncate", True):
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    stretched = min(max((index - max(bounds[0], 0)) / (min(bounds[1], dim - 1) - max(bounds[0], 0)), 0), 1)
    return 1 / (stretched / settings["factor"] + (1 - stretched))


@pytest.mark.parametrize("more", [{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"truncate": False}])
def test_yarn_divisors(more):
    settings = {"rope_type": "yarn", **YARN, **more}
    rope = read(rope_theta=1e4, rope_scaling=settings)[0]
    expected = [yarn_divisor(i, 64, 1e4, settings) for i in range(32)]
    np.testing.assert_allclose(rope.divisors(64), expected, rtol=1e-6)
    assert expected[0] == 1.0
    assert expected[-1] == 4.0


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 0.1 * math.log(4) + 1),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.7, "mscale_all_dim": 0.5}, (0.07 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
    ],
)
def test_yarn_scales_what_it_rotates(more, expected):
    assert read(rope_scaling={"type": "yarn", **YARN, **more})[0].attention == pytest.approx(expected)


def test_yarn_without_its_own_context_takes_the_configs():
    assert read(rope_scaling={"type": "yarn", "factor": 2.0})[0].scaling == Yarn(2.0, 32.0, 1.0, 2048)


def test_divisors_that_are_no_numbers_are_refused():
    with pytest.raises(CheckpointError, match="gives no frequencies"):
        Rope("yarn", 1e30, scaling=Yarn(float("nan"), 32.0, 1.0, 1)).divisors(16)


def test_safeailab_drops_the_base_where_a_scaling_is_set():
    assert Rope("linear", 500.0, 4.0).in_safeailab() == Rope("linear", 10000.0, 4.0)
    assert Rope("default", 500.0).in_safeailab().theta == 500.0


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "longrope", "factor": 2}, "rope type 'longrope'"),
        ({"type": 7}, "rope type 7"),
        ({"rope_type": "llama3", "factor": 2}, "low_freq_factor"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}, "must be larger"),
        ({"rope_type": "yarn"}, "no factor"),
        ({"rope_type": "yarn", **YARN, "mscale_all_dim": "x"}, "mscale_all_dim"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ({"rope_type": "yarn", **YARN, "rope_theta": 1}, "base above 1"),
        ({"rope_type": "linear", "factor": 1e300}, "factor"),
        ("linear", "expected an object"),
    ],
)
def test_what_is_unknown_or_senseless_is_named(scaling, words):
    with pytest.raises(CheckpointError, match=words):
        read(rope_scaling=scaling)
