"""Datasets by name. Imports no torch: the module of a dataset is imported only by `load_dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from training.config.schema import DataSettings
from training.data.files import locate_cifar10, locate_image_folders, locate_text_files
from training.data.options import (
    Cifar10Options,
    DiabetesOptions,
    DigitsOptions,
    ImageFolderOptions,
    ParquetOptions,
    SyntheticOptions,
    SyntheticTextOptions,
    TargetKind,
    TarShardsOptions,
    TextOptions,
)
from training.data.split_files import locate_parquet, locate_tar_shards
from training.errors import DataError, SettingsError
from training.factories import FactorySpec, Registry, is_import_path

if TYPE_CHECKING:
    from training.data.types import DataBundle


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(FactorySpec):
    """A dataset; its factory takes `DataSettings` and its options, and returns a `DataBundle`.

    Attributes:
        locate_files: raises `DataError` if `data.path` does not contain the dataset; None for a dataset without files.
    """

    locate_files: Callable[[Path], object] | None = None

    @property
    def needs_path(self) -> bool:
        """Whether `data.path` is required; otherwise it is not allowed."""
        return self.locate_files is not None


DATASETS = Registry(
    kind="dataset",
    setting="data.dataset",
    options_setting="data.options",
    returns="training.data.types:DataBundle",
    specs=(
        DatasetSpec(
            name="cifar10",
            factory="training.data.cifar10:load_cifar10",
            options=Cifar10Options,
            locate_files=locate_cifar10,
        ),
        DatasetSpec(name="diabetes", factory="training.data.diabetes:load_diabetes", options=DiabetesOptions),
        DatasetSpec(name="digits", factory="training.data.digits:load_digits", options=DigitsOptions),
        DatasetSpec(
            name="image_folder",
            factory="training.data.image_folder:load_image_folder",
            options=ImageFolderOptions,
            locate_files=locate_image_folders,
        ),
        DatasetSpec(
            name="parquet",
            factory="training.data.parquet:load_parquet",
            options=ParquetOptions,
            locate_files=locate_parquet,
        ),
        DatasetSpec(name="python_reference", factory="training.data.text:load_python_reference", options=TextOptions),
        DatasetSpec(name="synthetic", factory="training.data.synthetic:load_synthetic", options=SyntheticOptions),
        DatasetSpec(
            name="synthetic_text",
            factory="training.data.synthetic_text:load_synthetic_text",
            options=SyntheticTextOptions,
        ),
        DatasetSpec(
            name="tar_shards",
            factory="training.data.tar_shards:load_tar_shards",
            options=TarShardsOptions,
            locate_files=locate_tar_shards,
        ),
        DatasetSpec(
            name="text_files",
            factory="training.data.text:load_text_files",
            options=TextOptions,
            locate_files=locate_text_files,
        ),
    ),
)


def validate(settings: DataSettings) -> None:
    """Validates the settings without looking at the dataset's files.

    Raises:
        SettingsError: the dataset or an option is unknown, an option has an invalid value, the path is missing or not
            used, or the module of a factory of your own does not exist.
    """
    DATASETS.validate(settings.dataset, settings.options)
    if is_import_path(settings.dataset):
        return
    spec = DATASETS.find(settings.dataset)
    if spec.needs_path and settings.path is None:
        raise SettingsError(f"data.path is not set, but dataset {spec.name} reads files", remedy="set data.path=FOLDER")
    if not spec.needs_path and settings.path is not None:
        raise SettingsError(
            f"data.path={settings.path} is set, but dataset {spec.name} has no files",
            remedy="remove data.path, or choose another data.dataset",
        )


def check_files(settings: DataSettings) -> None:
    """Checks that the dataset's files exist and are large enough, without opening them; those in a bucket are not looked at.

    Args:
        settings: validated settings.

    Raises:
        DataError: a file or folder is missing, truncated, empty or cannot be read.
    """
    if is_import_path(settings.dataset) or settings.path is None or settings.is_in_bucket:
        return
    locate_files = DATASETS.find(settings.dataset).locate_files
    assert locate_files is not None, "validated: only a dataset with files has a path"
    with _reading(settings):
        locate_files(settings.folder)


def load_dataset(settings: DataSettings, *, targets: TargetKind | None = None) -> DataBundle:
    """Loads the dataset.

    Args:
        settings: of the dataset.
        targets: what the objective needs; decides for a dataset whose targets may be either, if its options do not.

    A factory of your own is called as factory(settings, **settings.options) and must return a `DataBundle`. It does not
    get the run's seed: samples and splits must not depend on it.

    Raises:
        SettingsError: as `validate`; or a split is empty, or a factory of your own does not accept the options or
            returns another type.
        DataError: a file is missing, truncated, in an unexpected format or cannot be read.
    """
    validate(settings)
    options = settings.options
    if targets is not None and _has_either(settings.dataset):
        options = {"targets": targets, **options}
    with _reading(settings):
        bundle = cast("DataBundle", DATASETS.build(settings.dataset, settings, options))
    for split in ("train", "validation", "test"):
        if len(getattr(bundle, split)) == 0:
            raise SettingsError(
                f"the {split} split of dataset {settings.dataset} is empty "
                f"at data.validation_fraction={settings.validation_fraction}",
                remedy="every split needs a sample: choose another data.validation_fraction, of which each class gives its part, rounded "
                "to whole samples; or add samples",
            )
    return bundle


def _has_either(dataset: str) -> bool:
    """Whether the targets of a dataset are classes or values, as its options say."""
    return not is_import_path(dataset) and "targets" in DATASETS.find(dataset).options.model_fields


@contextmanager
def _reading(settings: DataSettings) -> Iterator[None]:
    """Turn an error of the file system into a `DataError`; not within a factory of your own, whose traceback you need."""
    try:
        yield
    except OSError as error:
        if is_import_path(settings.dataset):
            raise
        raise DataError(
            f"{error.filename or settings.path} cannot be read by dataset {settings.dataset}: {error.strerror}",
            remedy="correct its permissions or the link, or delete it",
        ) from error
