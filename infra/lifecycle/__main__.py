"""`python -m infra.lifecycle`."""

# PYTHON_ARGCOMPLETE_OK

from __future__ import annotations

import sys

try:
    from infra.lifecycle.cli import main
except KeyboardInterrupt:  # Ctrl-C during the imports, before `main` handles it
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
