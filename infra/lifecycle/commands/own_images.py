"""Push the images that an environment's registry lacks: build them, or copy tested ones from another environment."""

from __future__ import annotations

from infra.lifecycle.commands.image import image
from infra.lifecycle.commands.promote import promote
from infra.lifecycle.image import engines
from infra.lifecycle.image.recipes import IMAGES
from infra.lifecycle.options import ImageOptions, PromoteOptions
from infra.lifecycle.stack.stage import AccountState
from infra.spec.errors import RefusedError
from infra.spec.release import load_release


class OwnImages:
    """Our images of one environment.

    Args:
        environment: name of the environment.
        promote_from: name of the environment to copy from; None builds.
    """

    def __init__(self, environment: str, *, promote_from: str | None) -> None:
        self._environment = environment
        self._promote_from = promote_from

    def obstacle(self, account: AccountState) -> str | None:
        """See `bring_up.Images`.

        A build here would replace a digest that the release pins, which other environments run.
        """
        if self._promote_from is not None:
            return None
        images = load_release().images
        if pinned := [one.name for one in account.missing if images[one.name].digest]:
            return (
                f"the release pins {' and '.join(pinned)}, so copy what it pins: set FROM to an environment that has it"
            )
        try:
            engines.find()
        except RefusedError as error:
            return str(error)
        return None

    def push(self, account: AccountState) -> None:
        """See `bring_up.Images`."""
        missing = {one.name for one in account.missing}
        for name in IMAGES:
            if name not in missing:
                continue
            if self._promote_from is not None:
                promote(PromoteOptions(image=name, from_=self._promote_from, to=self._environment))
            else:
                image(ImageOptions(image=name, push=True, env=self._environment))
