"""Writes the Python declarations of eagle_api.h: `build_ffi.py OUTPUT`. llama_eagle/ffi.py opens the library."""

import sys
from pathlib import Path

from cffi import FFI


def main() -> None:
    output = Path(sys.argv[1])
    declarations = Path(__file__).with_name("eagle_api.h").read_text("utf-8")
    ffi = FFI()
    ffi.cdef(declarations)
    ffi.set_source("llama_eagle._eagle_cffi", None)
    ffi.emit_python_code(str(output))


if __name__ == "__main__":
    main()
