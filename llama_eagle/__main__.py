"""`python -m llama_eagle` is the command `llama-eagle`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
