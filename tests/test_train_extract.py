"""extract.py: features and likeliest tokens are the target's own, by the numpy network."""

import numpy as np
import pytest

from llama_eagle.errors import TrainingError
from llama_eagle.train.example import Text
from reference import forward

pytestmark = pytest.mark.usefixtures("requires_native")
TEXTS = [Text((72, 101, 108), (108, 111, 32, 119, 111, 114)), Text((65,), (66, 67, 68))]
LAYERS = (1, 3, 6)


@pytest.fixture(scope="module")
def extractor(tiny_target):
    from llama_eagle import Model  # noqa: PLC0415 - there may be no library
    from llama_eagle.train.extract import Extractor  # noqa: PLC0415

    with Model(tiny_target("llama").path) as model:
        made = Extractor(model, LAYERS, 64, n_threads=1)
        yield made
        made.close()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n_batch", [512, 4])
def test_an_example_is_what_the_network_computes(extractor, tiny_target, text, n_batch, monkeypatch):
    monkeypatch.setattr(extractor.context, "n_batch", n_batch)
    target = tiny_target("llama")
    extractor.scales = np.array([0.5, 1.0, 4.0], np.float32)
    example = extractor(text)
    assert (example.features.shape, example.ids.shape) == ((text.rows, 192), (text.count, 64))
    out = forward(target.tensors, target.shape, [*text.prompt, *text.answer[:-1]])
    expected = np.concatenate([out.layer_inputs[i] / s for i, s in zip(LAYERS, extractor.scales, strict=True)], axis=1)
    np.testing.assert_allclose(example.features, expected[:-1], rtol=2e-2, atol=2e-2)
    logits = out.logits[len(text.prompt) :]
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(example.ids[:, 0], logits.argmax(axis=1))
    np.testing.assert_allclose(example.logp, np.take_along_axis(logp, example.ids, 1), atol=0.03)


def test_scales_are_of_usual_rows(extractor, tiny_target):
    extractor.scales = np.ones(3, np.float32)
    rows = np.concatenate([extractor(text).features.astype(np.float32) for text in TEXTS])
    sizes = np.sqrt(np.median((rows.reshape(len(rows), 3, 64) ** 2).mean(axis=2), axis=0))
    np.testing.assert_allclose(extractor.measure(TEXTS), sizes, rtol=1e-2)


def test_a_target_that_computes_no_numbers_is_said(extractor, monkeypatch):
    monkeypatch.setattr(extractor.context, "features", lambda: np.full((8, 192), np.nan, np.float32))
    with pytest.raises(TrainingError, match="NaN"):
        extractor(TEXTS[0])
    with pytest.raises(TrainingError, match="zero or no numbers"):
        extractor.measure(TEXTS[:1])
