"""The extra `train`: whether torch is there. Imports it nowhere."""

import importlib.util

from ..errors import TrainingError


def need_torch() -> None:
    """Raises TrainingError with the way out where torch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise TrainingError("training needs torch, which is not installed: pip install 'llama-eagle[train]'")
