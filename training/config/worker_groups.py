"""Workers of several GPUs: groups of ranks, one per GPU, that share one copy of the model.

`--num-workers 4 --gpus-per-worker 2` runs 8 ranks (`scale.workers`), whose groups are those of the strategy:

| strategy.name | a worker is | sets |
|---|---|---|
| pipeline | a pipeline of 2 stages | strategy.stages=2 |
| hsdp | a group that has one copy of the weights in 2 parts | strategy.replicas=4 |
| fsdp2, zero3 | the whole run, so `--num-workers 1` | |

Under every other strategy a rank has a whole copy of the model, and uses one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class WorkerGroups:
    """What the two flags say.

    Attributes:
        workers: number of groups.
        ranks: ranks of each, 2 or more.
    """

    workers: int
    ranks: int

    @property
    def typed(self) -> str:
        """The flags as the user typed them."""
        return f"--num-workers {self.workers} --gpus-per-worker {self.ranks}"

    @classmethod
    def of(cls, per_worker: str, *, workers: object) -> WorkerGroups | None:
        """The groups of two flags as typed; None if a worker is one rank.

        Raises:
            SettingsError: they are no numbers, or the number of workers is missing.
        """
        if per_worker in {"0", "1"}:
            return None
        if not per_worker.isdecimal():
            raise SettingsError(f"--gpus-per-worker {per_worker} is not a number", remedy="give 0, 1 or more")
        if not str(workers).isdecimal() or int(str(workers)) == 0:
            given = (
                "--num-workers is missing" if workers is None else f"--num-workers {workers} is not a number from 1 on"
            )
            raise SettingsError(
                f"--gpus-per-worker {per_worker} makes groups of {per_worker} ranks, and {given}",
                remedy=f"--num-workers 1 is one group of {per_worker} GPUs",
            )
        return cls(workers=int(str(workers)), ranks=int(per_worker))

    def strategy_keys(self, strategy: Mapping[str, object]) -> list[tuple[str, object, str]]:
        """The keys, values and origins of the settings that make the groups.

        Args:
            strategy: the section as it was given, not checked yet.

        Raises:
            SettingsError: the strategy has no groups, or others.
        """
        name = strategy.get("name", "ddp")
        if name == "pipeline":
            return self._key("stages", self.ranks, strategy)
        if name == "hsdp" and self.workers > 1:
            return self._key("replicas", self.workers, strategy)
        if name in {"fsdp2", "zero3", "hsdp"}:
            if name != "hsdp" and self.workers == 1:
                return []
            other = "strategy.name=fsdp2" if name == "hsdp" else "strategy.name=hsdp"
            raise SettingsError(
                f"{self.typed}: strategy.name={name} "
                + ("needs 2 or more workers" if name == "hsdp" else "makes one group of all ranks"),
                remedy=f"--set {other} makes {self.workers} of {self.ranks}",
            )
        total = self.workers * self.ranks
        raise SettingsError(
            f"--gpus-per-worker {self.ranks}: under strategy.name={name} a rank has the whole model and uses one GPU",
            remedy=f"--use-gpu --num-workers {total} trains on the same {total} GPUs; or divide the model of a worker over its GPUs with "
            "strategy.name=pipeline or hsdp",
        )

    def _key(self, key: str, value: int, strategy: Mapping[str, object]) -> list[tuple[str, object, str]]:
        given = strategy.get(key, value)
        if str(given) != str(value):
            raise SettingsError(
                f"{self.typed} contradicts strategy.{key}={given}: it is strategy.{key}={value}",
                remedy="omit one of the two",
            )
        return [(f"strategy.{key}", value, self.typed)]
