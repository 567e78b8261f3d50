"""The oracle-ladder modules beside the tests are importable, and eager operations are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import weft  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
