"""``python -m weft`` is the ``weft`` command."""

from __future__ import annotations

import sys

from weft._base import cli

sys.exit(cli.main())
