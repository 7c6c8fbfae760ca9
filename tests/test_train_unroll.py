"""unroll.py: every row of every step is what a draft of the runtime computes, one token at a time, in numpy."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import training  # noqa: E402 - needs torch
from llama_eagle.train.batch import TrainBatch  # noqa: E402
from llama_eagle.train.unroll import unroll  # noqa: E402

STEPS = 4
EXAMPLES = [training.random_example(1, 5, 9), training.random_example(2, 1, 4), training.random_example(3, 7, 2)]


def drafted(net, example, row):
    """Draft logits of a chain that starts at a trained row: decoded from an empty cache, tokens from the text."""
    text = example.text
    tokens = [*text.prompt, *text.answer]
    seen = len(text.prompt) + row  # rows of true features
    net.truncate(0)
    g = net.encode(example.features[:seen])
    hidden, logits = net.decode(tokens[1 : seen + 1], g, np.arange(seen))
    found = [logits[-1]]
    for step in range(1, min(STEPS, text.count - row)):
        hidden, logits = net.decode([tokens[seen + step]], hidden[-1:], [seen + step - 1])
        found.append(logits[-1])
    return found


def test_rows_are_what_the_runtime_drafts():
    head = training.random_head()
    net = training.numpy_net(head)
    batch = TrainBatch(EXAMPLES, training.numbers())
    with torch.no_grad():
        steps = [(states @ head.lm_head.weight.T).numpy() for states in unroll(head, batch, STEPS)]
    place = 0
    for example in EXAMPLES:
        for row in range(example.text.count):
            for step, logits in enumerate(drafted(net, example, row)):
                np.testing.assert_allclose(steps[step][place], logits, rtol=2e-3, atol=2e-3)
            place += 1
    assert place == batch.count


def test_a_text_knows_nothing_of_its_neighbours():
    head = training.random_head()
    alone = list(unroll(head, TrainBatch(EXAMPLES[1:2], training.numbers()), STEPS))
    beside = list(unroll(head, TrainBatch(EXAMPLES, training.numbers()), STEPS))
    for one, many in zip(alone, beside, strict=True):
        torch.testing.assert_close(one, many[8:11])


def test_words_targets_and_ends():
    batch = TrainBatch(EXAMPLES, training.numbers())
    answers = [example.text.answer for example in EXAMPLES]
    assert batch.spans == [(12, 8), (3, 3), (7, 1)]
    assert batch.answer(0).tolist() == [t for answer in answers for t in answer[:-1]]
    assert batch.following(1)[:7].tolist() == list(answers[0][2:])
    assert batch.inside(2).tolist() == [True] * 6 + [False] * 2 + [True, False, False, False]
    ids, p = batch.targets(1)
    assert (p[7] == 0).all()
    assert (p[-1] == 0).all()
    first = EXAMPLES[0]
    kept = np.isin(first.ids[1], training.IDS)
    expected = np.exp(first.logp[1].astype(float)) * kept
    expected *= kept[0] / max(expected.sum(), 1e-9)
    np.testing.assert_allclose(p[0].numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(training.IDS[ids[0].numpy()][kept], first.ids[1][kept])
