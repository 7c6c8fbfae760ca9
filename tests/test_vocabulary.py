"""vocabulary.py: where two token lists part, words before special tokens, and fast for large ones."""

import time

import numpy as np

from llama_eagle.vocabulary import Differences, Vocabulary, differences
from sides import VOCABULARY, vocabulary


def test_equal_lists_have_no_differences():
    assert differences(VOCABULARY, vocabulary({})) is None


def test_words_are_told_from_special_tokens():
    assert differences(VOCABULARY, vocabulary({0: b"<bos>", 4: b"x", 6: b"y"})) == Differences(3, 2, 4)
    assert differences(VOCABULARY, vocabulary({0: b"<bos>"})) == Differences(1, 0, 0)


def test_without_types_every_token_is_a_word():
    assert differences(vocabulary({}, types=()), vocabulary({0: b"<bos>"}, types=())) == Differences(1, 1, 0)


def test_a_special_token_of_either_side_may_be_renamed():
    other = vocabulary({7: b"<|im_end|>"}, types=[1, 1, 1, 1, 1, 1, 1, 4])
    assert differences(VOCABULARY, other) == Differences(1, 0, 7)


def test_large_lists_are_compared_in_no_time():
    """128k texts, equal and with the last one different: well below the fifth of a second that a load may notice."""
    texts = [b"token %d" % i for i in range(128_256)]
    same, other = [bytes(bytearray(text)) for text in texts], [*texts[:-1], b"x"]
    one, types = Vocabulary("gpt2", "llama-bpe", texts), np.ones(len(texts), np.int32)
    start = time.perf_counter()
    assert differences(one, Vocabulary("gpt2", "llama-bpe", same, types)) is None
    found = differences(one, Vocabulary("gpt2", "llama-bpe", other, types))
    assert time.perf_counter() - start < 1.0  # a loaded machine may be slow
    assert found == Differences(1, 1, 128_255)
