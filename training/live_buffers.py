"""The buffers of a module as they are now: a forward pass may assign another tensor to the name of one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


class LiveBuffers:
    """Looks buffers up by name, without a walk through the module each time.

    Args:
        module: has the buffers; those that it registers later are not seen.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {id(value): name for name, value in module.named_buffers()}  # a shared one has one name
        self._owners: list[tuple[str, nn.Module, str]] = []
        for owner in module.modules():
            for key, value in owner._buffers.items():  # noqa: SLF001 - as `nn.Module.named_buffers` reads them
                if value is not None and id(value) in names:
                    self._owners.append((names.pop(id(value)), owner, key))

    def now(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor of each buffer that is one now."""
        for name, owner, key in self._owners:
            value = owner._buffers.get(key)  # noqa: SLF001
            if value is not None:
                yield name, value
