"""`python -m infra.lifecycle`."""

# PYTHON_ARGCOMPLETE_OK

from __future__ import annotations

import sys

from infra.lifecycle.cli import main

if __name__ == "__main__":
    sys.exit(main())
