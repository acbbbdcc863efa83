"""Entry point of `pulumi preview --policy-pack infra/policy`: serves the rules to the engine until it is done."""

from __future__ import annotations

import sys
from pathlib import Path

# The engine starts this file by its folder's path, which makes the folder the root of imports instead of the project.
_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [str(_FOLDER.parents[1]), *(one for one in sys.path if Path(one).resolve() != _FOLDER)]

from infra.policy.pack import serve  # noqa: E402  # needs the path

serve()
