"""``python -m weft`` is the ``weft`` command."""

from __future__ import annotations

import sys

from weft import cli

sys.exit(cli.main())
