"""Whether counts fit a distribution, for tests of sampling."""

import numpy as np


def assert_fits(counts: np.ndarray, expected: np.ndarray) -> None:
    """Chi-square of counts against expected ones, whatever is rare taken together; fails once in 10,000 good tests."""
    assert counts[expected == 0].sum() == 0
    rare = expected < 8
    seen, wanted = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    statistic, freedom = ((seen - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum(), len(wanted) - 1
    assert freedom > 5
    # Wilson and Hilferty's cube root: z = 3.7 is p = 1e-4
    assert (statistic / freedom) ** (1 / 3) < 1 - 2 / (9 * freedom) + 3.7 * np.sqrt(2 / (9 * freedom))
