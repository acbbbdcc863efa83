"""Datasets by name. Light: a dataset's own module, and with it torch, is imported only by `build`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from infra.spec.section import Section
from training import factories
from training.config.schema import DataSettings
from training.data.files import check_cifar10, check_image_folders
from training.data.options import Cifar10Options, DigitsOptions, ImageFolderOptions, SyntheticOptions
from training.errors import SettingsError

if TYPE_CHECKING:
    from training.data.types import DataBundle


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What is known of a dataset without loading it.

    Attributes:
        name: value of `data.dataset`.
        factory: "module:function", called with `DataSettings` and an instance of `options`, returns a `DataBundle`.
        options: model of `data.options`.
        summary: one line for people.
        check_files: raises `DataError` if `data.path` cannot hold the dataset; None for a dataset without files.
    """

    name: str
    factory: str
    options: type[Section]
    summary: str
    check_files: Callable[[Path], None] | None = None

    @property
    def needs_path(self) -> bool:
        """Whether `data.path` must be set; otherwise it must not."""
        return self.check_files is not None


_SPECS = (
    DatasetSpec(
        name="cifar10",
        factory="training.data.cifar10:load",
        options=Cifar10Options,
        summary="CIFAR-10 from its published files: 60,000 colour images of 32 x 32, 10 classes.",
        check_files=check_cifar10,
    ),
    DatasetSpec(
        name="digits",
        factory="training.data.digits:load",
        options=DigitsOptions,
        summary="1797 handwritten digits of 8 x 8 that scikit-learn ships; nothing to download.",
    ),
    DatasetSpec(
        name="image_folder",
        factory="training.data.image_folder:load",
        options=ImageFolderOptions,
        summary="Images in ImageNet's layout, PATH/train/CLASS/*.jpg.",
        check_files=check_image_folders,
    ),
    DatasetSpec(
        name="synthetic",
        factory="training.data.synthetic:load",
        options=SyntheticOptions,
        summary="Made-up vectors or images of any number and size, with classes that can be learnt.",
    ),
)


def names() -> tuple[str, ...]:
    """Returns the names of the datasets, sorted."""
    return tuple(spec.name for spec in _SPECS)


def find(name: str) -> DatasetSpec:
    """Returns the dataset of this name.

    Raises:
        SettingsError: there is none; the message has the nearest name.
    """
    for spec in _SPECS:
        if spec.name == name:
            return spec
    meant = factories.nearest(name, names())
    raise SettingsError(
        f"data.dataset={name} is no dataset",
        remedy=f"{meant}datasets: {', '.join(names())}; or package.module:factory of your own",
    )


def validate(settings: DataSettings) -> None:
    """Checks the settings alone; looks at no file of the dataset.

    Raises:
        SettingsError: the dataset or one of its options is unknown, an option's value is wrong, or the path is missing
            or not used.
    """
    if factories.is_own(settings.dataset):
        factories.check_importable(settings.dataset, setting="data.dataset")
        return
    spec = find(settings.dataset)
    _options(spec, settings)
    if spec.needs_path and settings.path is None:
        raise SettingsError(
            f"data.path is not set, dataset {spec.name} is read from files", remedy="set data.path=FOLDER"
        )
    if not spec.needs_path and settings.path is not None:
        raise SettingsError(
            f"data.path={settings.path} is set, dataset {spec.name} has no files",
            remedy="leave data.path out, or choose another data.dataset",
        )


def check_files(settings: DataSettings) -> None:
    """Looks whether the dataset's files are there and none is too small, without opening one.

    Args:
        settings: validated settings.

    Raises:
        DataError: a file or folder is missing, truncated or empty.
    """
    if factories.is_own(settings.dataset) or settings.path is None:
        return
    check = find(settings.dataset).check_files
    assert check is not None, "validated: a path is set for datasets with files only"
    check(settings.path)


def build(settings: DataSettings) -> DataBundle:
    """Loads the dataset.

    A factory of your own is called as factory(settings, **settings.options) and returns a `DataBundle`. The run's seed
    is not among its arguments: which samples there are, and which are held out, must not change with it.

    Raises:
        SettingsError: as `validate`; or a split has no sample, or a factory of your own cannot be called or returns
            something else.
        DataError: a file is missing, truncated or holds something else.
    """
    validate(settings)
    if factories.is_own(settings.dataset):
        bundle = _build_own(settings)
    else:
        spec = find(settings.dataset)
        module, _, function = spec.factory.partition(":")
        factory = getattr(import_module(module), function)
        bundle = cast("DataBundle", factory(settings, _options(spec, settings)))
    for split in ("train", "validation", "test"):
        if len(getattr(bundle, split)) == 0:
            raise SettingsError(
                f"the {split} split of dataset {settings.dataset} is empty "
                f"at data.validation_fraction={settings.validation_fraction}",
                remedy="every split needs a sample: choose another data.validation_fraction, or add samples",
            )
    return bundle


def _options(spec: DatasetSpec, settings: DataSettings) -> Section:
    return factories.parse_options(spec.options, settings.options, setting="data.options", owner=f"dataset {spec.name}")


def _build_own(settings: DataSettings) -> DataBundle:
    from training.data.types import DataBundle  # noqa: PLC0415 - the command line imports this module

    factory = factories.resolve(settings.dataset, setting="data.dataset")
    bundle = factories.call(factory, settings, settings.options, setting="data.options")
    if not isinstance(bundle, DataBundle):
        raise SettingsError(
            f"data.dataset={settings.dataset} returned {type(bundle).__name__}",
            remedy="a factory returns a training.data.types.DataBundle",
        )
    return bundle
