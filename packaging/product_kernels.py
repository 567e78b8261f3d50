"""Compiles the kernels of matrix products: ``python packaging/product_kernels.py FOLDER INSTRUCTIONS...``.

CMakeLists.txt calls it, for files that lie beside the native module. Nothing of weft is built yet then: the package
that writes the kernels imports nothing of it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "weft" / "codegen" / "cpu"))
objects = importlib.import_module("products.objects")


def main(folder: Path, instructions: list[str]) -> None:
    """Write a file for each unit of these instruction sets, instead of those of earlier sources."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in instructions:
        made = objects.files(objects.tables.units(name))
        for old in folder.glob(f"{name}_*"):
            old.unlink()
        for file, content in made.items():
            (folder / file).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
