"""Settings of torch's allocator of GPU memory, which reads them from the environment when the first GPU memory is allocated.

They are set in the process of a rank before it imports torch. Read without torch.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

from training.config.schema import AllocatorSettings

_VARIABLE: Final = "PYTORCH_ALLOC_CONF"
_VARIABLES: Final = (_VARIABLE, "PYTORCH_CUDA_ALLOC_CONF")
"""What torch reads; the second is the name before torch 2.9."""


def allocator_options(settings: AllocatorSettings) -> str:
    """The settings that were made, as torch reads them, e.g. `expandable_segments:True,max_split_size_mb:512`."""
    made = settings.model_dump(exclude_defaults=True)
    return ",".join(f"{name}:{value}" for name, value in made.items())


def configure_allocator(settings: AllocatorSettings, environment: MutableMapping[str, str] = os.environ) -> str:
    """Set the variable of this process, unless the user has set it.

    Args:
        settings: of the run.
        environment: of the process.

    Returns:
        A warning if a variable of the user's makes the settings void; empty if not.
    """
    options = allocator_options(settings)
    given = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    if not options or options in given.values():
        return ""
    if given:
        variables = ", ".join(f"{name}={value}" for name, value in given.items())
        return f"compute.allocator ({options}) has no effect: the environment has {variables}"
    environment[_VARIABLE] = options
    return ""
