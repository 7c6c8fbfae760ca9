"""The command line, `llama-eagle`."""

from .command import main

__all__ = ["main"]
