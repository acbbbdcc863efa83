"""Entry point of `pulumi preview --policy-pack infra/policy`."""

from __future__ import annotations

import sys
from pathlib import Path

# The engine runs this folder as a script and puts it on sys.path instead of the repository's root.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [str(_FOLDER.parents[1]), *(one for one in sys.path if Path(one).resolve() != _FOLDER)]

from infra.policy.pack import serve  # noqa: E402  # needs the path

serve()
