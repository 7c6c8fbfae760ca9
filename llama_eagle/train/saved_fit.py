"""A training's state as one safetensors file: weights, the optimizers' state and the place; whole or not at all."""

import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import TrainingError
from .fit import Fit, Place


def save(fit: Fit, path: Path) -> None:
    """Writes the state beside the old one, then replaces it."""
    new = path.with_name(path.name + ".new")
    tensors = {name: value.detach().cpu().contiguous() for name, value in fit.tensors().items()}
    save_file(tensors, new, {"place": json.dumps(vars(fit.place))})
    with new.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)


def load(fit: Fit, path: Path) -> None:
    """Makes a fit of the same shape what it was. Raises TrainingError for a file that is damaged or of another one."""
    try:
        with safe_open(path, "pt") as file:
            place = Place(**json.loads(file.metadata()["place"]))
            for name, value in fit.tensors().items():
                value.data.copy_(file.get_tensor(name))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())[:200]
        raise TrainingError(f"{path} is no state of this training ({why}): delete it to begin again") from None
    fit.place = place
