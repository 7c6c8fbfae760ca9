"""writer.py: what it computes of a text is what decoding the text computes, whatever came before and beside it."""

import numpy as np
import pytest

from llama_eagle.train.example import Text

pytestmark = pytest.mark.usefixtures("requires_native")
LAYERS = (1, 3, 6)
PROMPTS = [[72, 101, 108], [65], [72, 101, 108, 108, 111, 32, 119], [72, 101, 109, 3], [7, 8]]


@pytest.fixture(scope="module")
def model(tiny_target):
    from llama_eagle import Model  # noqa: PLC0415 - there may be no library

    with Model(tiny_target("llama").path) as made:
        yield made


def finished(model, prompts, temperature, seed=1, parallel=2):
    from llama_eagle.train.writer import Writer  # noqa: PLC0415

    writer, waiting, found, asked = Writer(model, LAYERS, (parallel, 40), 1, seed), list(prompts), [], {}
    while waiting or asked:
        for row in set(range(parallel)) - set(asked):
            if waiting:
                asked[row] = waiting.pop(0)
                writer.give(row, asked[row], temperature, 24)
        for row in writer.step():
            prompt = asked.pop(row)
            tokens = writer.tokens[row, : writer.known[row]].tolist()
            assert tokens[: len(prompt)] == prompt
            found.append((Text(tuple(prompt), tuple(tokens[len(prompt) :])), writer.computed(row, len(prompt))))
    writer.close()
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_features_and_likeliest_tokens_are_those_of_the_text(model, temperature):
    from llama_eagle.train.extract import Extractor  # noqa: PLC0415

    extractor, ones = Extractor(model, LAYERS, 64, 1), np.ones(3, np.float32)
    texts = finished(model, PROMPTS, temperature)
    assert len(texts) == len(PROMPTS)
    for text, computed in texts:
        mine, theirs = computed.example(text, ones), extractor(text)
        assert mine.features.shape == (text.rows, 192)
        np.testing.assert_allclose(mine.features, theirs.features, rtol=1e-2, atol=1e-2)
        np.testing.assert_allclose(mine.logp, theirs.logp, rtol=1e-2, atol=1e-2)
        if temperature == 0:
            np.testing.assert_array_equal(mine.ids[:, 0], text.answer[1:])
    extractor.close()


def test_drawn_texts_follow_the_seed_and_are_likely(model):
    drawn = [finished(model, PROMPTS, 1.0, seed) for seed in (1, 1, 2)]
    texts = [[text.answer for text, _ in found] for found in drawn]
    assert texts[0] == texts[1] != texts[2]
    for text, computed in drawn[0]:
        rank = (computed.ids == np.array(text.answer[1:])[:, None]).argmax(axis=1)
        chosen = np.take_along_axis(computed.logp, rank[:, None], 1)[:, 0]
        assert (chosen >= computed.logp[:, 0] + np.log(0.02) - 1e-4).all()


def test_a_text_that_repeats_itself_ends(model):
    from llama_eagle.train.writer import Writer  # noqa: PLC0415

    writer = Writer(model, LAYERS, (1, 256), 1, 1)
    for period, repeats in ((3, True), (32, True), (33, False)):
        writer.tokens[0, :128] = np.arange(128) % period
        writer.known[0] = 128
        assert writer._repeats(0) is repeats
    writer.known[0] = 127
    assert not writer._repeats(0)
    writer.close()
