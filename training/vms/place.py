"""What a job has to know of a cluster: where its machines have the checkout, the runs and the datasets.

The launcher file carries it, under `metadata`, which Ray does not interpret. So a job needs the file and nothing of the stack.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from infra.spec.section import Section, read_document, validate
from training.errors import SettingsError

METADATA_KEY = "ray-train-platform"

CHECKOUT = "checkout"
TOKEN = "token"  # noqa: S105 - the name of a file

SETTINGS_FILE, CODE_FILE = "settings.yaml", "code.tar.gz"
"""Files of a job's working directory."""


class RunPlace(Section):
    """Where runs are on the machines of a cluster."""

    platform: str = Field(description="Release of the trainer on the machines.")
    home: str = Field(
        pattern=r"^~/[A-Za-z0-9._/-]+$", description="Folder of the cluster in the home folder of the SSH user."
    )
    token_file: str = Field(description="File with the token of Ray's services, on the machine that wrote this file.")
    runs: Annotated[str, Field(pattern=r"^/")] = Field(description="Folder of the runs, which all machines share.")
    data_folders: tuple[str, ...] = Field((), description="Folders that datasets are in; none: any absolute path.")
    checkpoint_remote: str | None = Field(None, description="Where checkpoints are copied, in S3.")
    checkpoint_owner: str | None = Field(None, description="Account of that bucket.")
    tracking_uri: str = Field(description="MLflow.")

    @property
    def checkout(self) -> str:
        """Folder of the trainer's code and environment on each machine."""
        return f"{self.home}/{CHECKOUT}"

    @property
    def python(self) -> str:
        """The interpreter of the trainer on each machine; `~` is the shell's."""
        return f"{self.checkout}/.venv/bin/python"

    def is_data(self, path: Path) -> bool:
        """Whether the machines have that path, as far as this file knows."""
        folder = PurePosixPath(path.as_posix())
        if not folder.is_absolute() or ".." in folder.parts:
            return False
        return not self.data_folders or any(folder.is_relative_to(one) for one in self.data_folders)


def home_of(name: str) -> str:
    """Folder of a cluster on its machines."""
    return f"~/.rtp/{name}"


def entrypoint(python: str, folder: str, *, has_code: bool, resumes: str = "") -> str:
    """The shell command of a job.

    It leaves the job's working directory, which Ray removes when the driver disconnects, before the driver has reported its end.

    Args:
        python: the trainer's interpreter.
        folder: a folder that stays.
        has_code: the working directory has an archive of code of the user's own.
        resumes: arguments of `resume`, for the shell; without, it trains with the settings in the working directory.
    """
    code = f' --code "$given/{CODE_FILE}"' if has_code else ""
    command = f"resume {resumes}" if resumes else f'train --config "$given/{SETTINGS_FILE}"'
    return f"given=$PWD; cd {folder} && exec {python} -m training {command}{code}"


def local_tracking(runs: str) -> str:
    """A store in the folder of the runs, where no MLflow server can be reached."""
    return f"sqlite:///{runs}/mlflow.db"


def metadata_of(place: RunPlace) -> dict[str, Any]:
    """The `metadata` of a launcher file."""
    return {METADATA_KEY: place.model_dump(mode="json", exclude_defaults=True)}


def read_place(file: Path, *, platform: str) -> RunPlace:
    """The place that a launcher file names.

    Args:
        file: a file that `make ray-cluster` wrote.
        platform: this checkout's release.

    Raises:
        SettingsError: there is no such file, it is not one of ours, or it is another release's.
    """
    again = "write it with make ray-cluster ENV=…, or HOSTS=…"
    if not file.is_file():
        raise SettingsError(f"ray={file}: no such file", remedy=again)
    content = read_document(file).value
    found = (content.get("metadata") or {}).get(METADATA_KEY) if isinstance(content.get("metadata"), dict) else None
    if not isinstance(found, dict):
        raise SettingsError(
            f"ray={file} has no metadata.{METADATA_KEY}, so where runs are on its machines is unknown", remedy=again
        )
    place = validate(RunPlace, found, file=f"{file}: metadata.{METADATA_KEY}")
    if place.platform != platform:
        raise SettingsError(
            f"ray={file} is of release {place.platform}, this checkout is {platform}",
            remedy="check out that release, or write the file again and run ray up on it",
        )
    return place
