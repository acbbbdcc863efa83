"""The JSON files of a checkpoint: the manifest that commits it, and the state that is not tensors. Read without torch.

The manifest is written last and contains its own sha256, so a manifest that decodes is complete, and a folder without one
is not a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter

from infra.spec.yaml_text import inline
from training.code.identity import CodeIdentity

WHOLE_FORMAT = 1
"""Layout of a checkpoint whose tensors are whole: rank 0 has written one file per state."""

SHARDED_FORMAT = 2
"""Layout of a checkpoint to which every rank has written its parts of the tensors, one file per state and rank."""

MANIFEST_FILE = "manifest.json"
LOOP_STATE_FILE = "state.json"
TENSOR_SUFFIX = ".safetensors"
MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"

_OF_RANK = "-rank-"

_UNSET = "(unset)"
"""Shown for an option that was not set; a setting of the schema always has a value."""

_BARE = {"optimizer": "class", "best_metrics": "metrics"}
"""States whose only JSON value format 1 writes without this key, as before states had names."""


@dataclass(frozen=True, kw_only=True)
class TrainProgress:
    """How far a run has come, by its committed optimizer steps.

    Attributes:
        step: optimizer steps done.
        epoch: the current epoch, 1-based.
        step_in_epoch: optimizer steps of the current epoch done.
        samples: samples consumed since the run began.
        skipped: those of the steps that changed no weight, because the gradient was not finite; 0 in checkpoints of earlier versions.
        learning_rate: of the last step; 0 before the first one, and in checkpoints of earlier versions.
    """

    step: int
    epoch: int
    step_in_epoch: int
    samples: int
    skipped: int = 0
    learning_rate: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The run that a checkpoint belongs to. Fields marked recorded may differ on resume; the others must not.

    Attributes:
        model: name of the model.
        objective: name of the objective.
        dataset_fingerprint: sha256 of the dataset, hex.
        global_batch: samples per optimizer step over all ranks.
        seed: seed of weights, data order, augmentation and dropout.
        world: ranks that trained (recorded).
        settings: the settings that training depends on, by section and key (recorded); empty in checkpoints of earlier versions.
        platform_version: version of this platform (recorded).
        code: identity of the run's own code, a `CodeIdentity` as JSON; None without (recorded).
    """

    model: str
    dataset_fingerprint: str
    global_batch: int
    seed: int
    world: int = field(metadata={"recorded": True})
    platform_version: str = field(metadata={"recorded": True})
    settings: dict[str, Any] = field(default_factory=dict, metadata={"recorded": True})
    objective: str = "classification"
    code: dict[str, Any] | None = field(default=None, metadata={"recorded": True})

    def mismatches(self, wanted: Identity) -> list[str]:
        """Differences that forbid resuming as `wanted`, each as `field: saved A, wanted B`."""
        return self._differences(wanted, recorded=False)

    def notes(self, wanted: Identity) -> list[str]:
        """Differences that a resumed run may have, to be reported, in the same form; of settings each key."""
        return self._differences(wanted, recorded=True)

    def _differences(self, wanted: Identity, *, recorded: bool) -> list[str]:
        names = [f.name for f in fields(self) if f.metadata.get("recorded", False) is recorded and f.name != "settings"]
        pairs = [(name, getattr(self, name), getattr(wanted, name)) for name in names]
        if recorded and self.settings:
            saved, want = dict(_flatten(self.settings)), dict(_flatten(wanted.settings))
            pairs += [
                (key, saved.get(key, _UNSET), want.get(key, _UNSET)) for key in sorted(saved.keys() | want.keys())
            ]
        return [
            f"{name}: saved {_text(name, saved)}, wanted {_text(name, want)}"
            for name, saved, want in pairs
            if saved != want
        ]


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of a checkpoint: its name in the folder, its size in bytes and its sha256 in hex."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Commits a checkpoint.

    Attributes:
        step: optimizer steps done.
        identity: the run it belongs to.
        metric: the metric that ranks it among the best, None if it was not measured at this step.
        created: time of the commit, ISO 8601 in UTC.
        files: every other file of the folder.
        format: `WHOLE_FORMAT` or `SHARDED_FORMAT`.
    """

    step: int
    identity: Identity
    metric: float | None
    created: str
    files: tuple[FileEntry, ...]
    format: int = WHOLE_FORMAT

    @property
    def total_bytes(self) -> int:
        """Size of all files together, without the manifest."""
        return sum(file.bytes for file in self.files)

    @property
    def tensor_files(self) -> dict[str, list[FileEntry]]:
        """The files with tensors by the name of their state, in the order of the ranks."""
        found: dict[str, list[FileEntry]] = {}
        for file in sorted(self.files, key=lambda file: file.name):
            if file.name.endswith(TENSOR_SUFFIX):
                found.setdefault(file.name.removesuffix(TENSOR_SUFFIX).partition(_OF_RANK)[0], []).append(file)
        return found

    @property
    def weights_sha256(self) -> str:
        """Hash of the model's file; of several the hash of their names and hashes. Empty without a model."""
        files = self.tensor_files.get("model", [])
        if len(files) == 1:
            return files[0].sha256
        return _digest({file.name: file.sha256 for file in files}) if files else ""

    @property
    def digest(self) -> str:
        """Hash of the manifest itself, hex: equal ones commit equal checkpoints."""
        return _digest(asdict(self))

    def encode(self) -> bytes:
        """The manifest as canonical JSON with its own sha256."""
        record = asdict(self)
        return _canonical({**record, "sha256": _digest(record)}) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """The manifest that `encode` wrote.

        Raises:
            ValueError: it is not a JSON object, its hash does not match, or its format is not supported.
        """
        record = json.loads(data)
        if not isinstance(record, dict):
            raise ValueError(f"it is a JSON {type(record).__name__}, not an object")
        claimed = record.pop("sha256", None)
        if claimed != _digest(record):
            raise ValueError("its content does not match its sha256")
        if record.get("format") not in (WHOLE_FORMAT, SHARDED_FORMAT):
            raise ValueError(f"unsupported format, this version reads formats {WHOLE_FORMAT} and {SHARDED_FORMAT}")
        return _MANIFEST.validate_python(record)


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """The content of `state.json`: all state that is not tensors.

    Attributes:
        progress: how far the run has come.
        optimizer: class name of the optimizer; empty if none was saved.
        precision: state of the loss scaler; empty without one.
        extra: JSON values of every other state, by registered name.
    """

    progress: TrainProgress
    optimizer: str
    precision: dict[str, float | int]
    extra: dict[str, Any]

    @classmethod
    def of(cls, progress: TrainProgress, values: Mapping[str, Mapping[str, Any]]) -> LoopState:
        """The state of a run from its progress and the JSON values of its states, by registered name."""
        written: dict[str, Any] = {
            name: state[_BARE[name]] if name in _BARE else state for name, state in values.items()
        }
        return cls(
            progress=progress,
            optimizer=written.pop("optimizer", ""),
            precision=written.pop("precision", {}),
            extra=written,
        )

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        """The JSON values by registered name, as given to `of`."""
        written: dict[str, Any] = dict(self.extra)
        if self.optimizer:
            written["optimizer"] = self.optimizer
        if self.precision:
            written["precision"] = self.precision
        return {name: {_BARE[name]: value} if name in _BARE else value for name, value in written.items()}

    def encode(self) -> bytes:
        """The state as JSON; floats survive bit for bit.

        Raises:
            TypeError: a state holds a value that is neither a tensor nor JSON.
        """
        for name, value in self.extra.items():
            try:
                json.dumps(value)
            except TypeError as error:
                raise TypeError(f"state {name}: {error}; a state holds tensors and JSON values only") from error
        return _canonical(asdict(self)) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> LoopState:
        """The state that `encode` wrote.

        Raises:
            ValueError: it is not JSON, or a field is missing or of a wrong type.
        """
        return _LOOP_STATE.validate_python(json.loads(data))


def part_file(state: str, rank: int) -> str:
    """Name of the file with a rank's parts of a state's tensors. The name of a state has no hyphen."""
    return f"{state}{_OF_RANK}{rank:05d}{TENSOR_SUFFIX}"


def _text(name: str, value: Any) -> str:  # noqa: ANN401 - any JSON
    """A recorded value, for people."""
    if name == "code":
        return "none" if value is None else CodeIdentity.load(value).describe()
    return inline(value)


def _flatten(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting that is not itself a mapping, under its dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield above + key, value


_MANIFEST = TypeAdapter(Manifest)
_LOOP_STATE = TypeAdapter(LoopState)


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(record)).hexdigest()
