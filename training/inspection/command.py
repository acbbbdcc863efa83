"""`make data`: prints what is in a dataset, names all that is damaged, and measures how fast it is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from observability.quantities import counted
from training.config.schema import TrainingSettings
from training.data import cache
from training.data.order import epoch_order
from training.data.registry import load_dataset
from training.data.types import DataBundle, Split
from training.errors import DataError, ExitStatus, SettingsError
from training.inspection import sheet
from training.inspection.rates import loader_processes, reading_rate, training_rate
from training.inspection.scan import Contents, scan
from training.objectives.registry import targets_of
from training.options.training import DataOptions

_SHEETS = Path(".local/data")
_SECONDS = 3.0
_FEW = 10
_MOST_CLASSES = 20
"""Classes whose samples are printed; of more, the smallest and the largest."""


def inspect(settings: TrainingSettings, options: DataOptions) -> ExitStatus:
    """Read the dataset and print what is in it.

    Raises:
        SettingsError: the dataset or an option is unknown, or the files are in a bucket and there is no cache.
        DataError: files are missing, or samples cannot be read; it is raised last, and names all of them.
    """
    if settings.data.is_in_bucket and settings.data.cache is None:
        raise SettingsError(
            f"data.path={settings.data.path} is in a bucket, and data.cache is not set",
            remedy="set data.cache to a folder on a local disk: --set data.cache=FOLDER",
        )
    if settings.data.cache is not None:
        cache.fill(settings.data, is_restart=False, report=_say)
    _say(f"loading {settings.data.dataset}")
    bundle = load_dataset(cache.cached(settings.data), targets=targets_of(settings.objective))
    _print_head(bundle)
    contents = _read(bundle, options.samples)
    if contents["train"].samples:
        file = options.out or _SHEETS / f"{bundle.name}.png"
        sheet.draw(bundle, file, augment=settings.data.augment)
        print(f"samples      {file}")
    damaged = dict.fromkeys(place for part in contents.values() for place in part.damaged)
    if damaged:
        raise DataError(
            "\n  ".join([f"{len(damaged)} places cannot be read:", *damaged]), remedy="replace or delete these files"
        )
    _print_rates(settings, bundle, options)
    return ExitStatus.DONE


def _read(bundle: DataBundle, samples: int | None) -> dict[str, Contents]:
    """Read the splits and print what is in them."""
    contents: dict[str, Contents] = {}
    for name, split in bundle.splits.items():
        ids = _chosen(split, samples)
        contents[name] = scan(split, ids, processes=_cpus(), report=_Progress(name, len(ids)))
        _print_contents(name, split, contents[name], is_sampled=len(ids) < len(split))
    if bundle.test is bundle.validation:
        print("test         the validation split")
    return contents


def _chosen(split: Split, samples: int | None) -> NDArray[np.int64]:
    """The ids to read, ascending: all, or as many as asked for, at random."""
    return np.sort(epoch_order(seed=0, epoch=0, size=len(split))[:samples])


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


class _Progress:
    """Prints how many samples of a split are read, and how fast."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total

    def __call__(self, done: int, seconds: float) -> None:
        _say(
            f"{self._name}: read {done:,} of {self._total:,} samples, {done / seconds:,.0f}/s with {_cpus()} processes"
        )


def _say(line: str) -> None:
    """Print about the progress, apart from what is found."""
    print(line, file=sys.stderr, flush=True)


def _print_head(bundle: DataBundle) -> None:
    spec = bundle.spec
    print(f"dataset      {bundle.name}")
    print(f"fingerprint  {bundle.fingerprint}")
    numbers = (
        f"int64 {spec.shape}, {spec.vocabulary:,} different tokens" if spec.vocabulary else f"float32 {spec.shape}"
    )
    print(f"input        {numbers}")
    print(f"output       {spec.output_shape}, one for each {'position' if spec.is_sequence else 'sample'}")
    for note in bundle.notes:
        print(f"note         {note}")


def _print_contents(name: str, split: Split, contents: Contents, *, is_sampled: bool) -> None:
    read = f", {contents.samples:,} of them read" if is_sampled or contents.damaged else ""
    targets = f", targets {contents.target}" if contents.target else ""
    print(f"{name:12} {len(split):,} samples{read}{targets}")
    if contents.count:
        print(f"{'':12} inputs have mean {contents.mean:.3g} and standard deviation {contents.deviation:.3g}")
    if contents.unusable:
        shown = ", ".join(map(str, contents.unusable[:_FEW]))
        print(f"{'':12} NaN or infinite inputs in {counted(len(contents.unusable), 'sample')}, by number: {shown}")
    if contents.classes:
        print(f"{'':12} {_classes(contents)}")


def _classes(contents: Contents) -> str:
    counts = contents.classes
    if len(counts) <= _MOST_CLASSES:
        return "samples of each class: " + ", ".join(f"{one}: {counts[one]:,}" for one in sorted(counts))
    (most, largest), *_, (least, smallest) = counts.most_common()
    return f"{len(counts):,} classes, from {smallest:,} samples (class {least}) to {largest:,} (class {most})"


def _print_rates(settings: TrainingSettings, bundle: DataBundle, options: DataOptions) -> None:
    _say("measuring how fast one core reads")
    read = reading_rate(bundle.train, augment=settings.data.augment, seconds=_SECONDS)
    print(f"reading      {read:,.0f} samples/s on one core")
    if options.rate is not None:
        needed, source = options.rate, "as given"
    elif options.model is not None or options.config:
        _say(f"measuring steps of {settings.model.name}")
        needed, device = training_rate(settings, bundle, seconds=_SECONDS)
        source = f"measured with {settings.model.name} on this machine's {device}"
    else:
        print("loader       give --rate (samples/s of a GPU) or --model for the number of loader processes")
        return
    processes = loader_processes(needed=needed, read=read)
    print(f"training     {needed:,.0f} samples/s on one device, {source}")
    if not processes:
        print(f"loader       data.loader_workers=0: one core reads {read / needed:,.0f} times as fast as a rank trains")
        return
    gpus, cores = _number(options.gpus, "GPU"), _number(processes * options.gpus, "core")
    print(
        f"loader       data.loader_workers={processes}: for {gpus} {cores} in all, of which this machine has {_cpus()}"
    )


def _number(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
