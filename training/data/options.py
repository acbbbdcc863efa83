"""The options of each dataset, set under `data.options`. Imports no torch, because the command line imports it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from training.config.values import OptionValue

SMALLEST_VOCABULARY = 257
"""Tokens of byte-pair encoding before anything is learned: the 256 bytes, and the separator of texts."""

Orientation = Literal["exif", "stored"]
"""How an image whose EXIF data have an orientation is read."""

_ORIENTATION = (
    "Images whose EXIF data have an orientation: exif (turned upright, as viewers show them) | stored (as their pixels are stored, which "
    "releases before this option did)"
)

TargetKind = Literal["classes", "values"]
"""What the targets of a dataset are."""


class DigitsOptions(Section):
    """Options of `digits`."""

    shift: Annotated[int, Field(ge=0, le=4)] = Field(
        1, description="Pixels by which augmentation may shift a training image, up, down, left or right."
    )


class SyntheticOptions(Section):
    """Options of `synthetic`."""

    kind: Literal["features", "images"] = Field("features", description="features (vectors) | images.")
    samples: PositiveInt = Field(10_000, description="Samples of the training split.")
    evaluation_samples: PositiveInt = Field(
        1_000, description="Samples of the validation split, and of the test split."
    )
    targets: Literal["classes", "labels", "values"] = Field(
        "classes",
        description="classes (one for each sample) | labels (each present or not, for multi_label) | values (for regression).",
    )
    classes: Annotated[int, Field(ge=2)] = Field(
        10, description="Number of classes, all equally frequent, of labels or of values."
    )
    features: PositiveInt = Field(784, description="Length of a vector (kind=features).")
    channels: PositiveInt = Field(3, description="Channels of an image (kind=images).")
    height: PositiveInt = Field(32, description="Height of an image (kind=images).")
    width: PositiveInt = Field(32, description="Width of an image (kind=images).")
    noise: NonNegativeFloat = Field(
        8.0, description="Standard deviation of the noise, relative to that of the class patterns."
    )
    seed: NonNegativeInt = Field(0, description="Seed of the samples; run.seed does not change them.")

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> SyntheticOptions:
        foreign = {"features"} if self.kind == "images" else {"channels", "height", "width"}
        for name in sorted(foreign & self.model_fields_set):
            other = "features" if self.kind == "images" else "images"
            raise ValueError(f"{name}={getattr(self, name)} is an option of kind={other}, got kind={self.kind}")
        return self


class SyntheticTextOptions(Section):
    """Options of `synthetic_text`."""

    samples: PositiveInt = Field(10_000, description="Texts of the training split.")
    evaluation_samples: PositiveInt = Field(1_000, description="Texts of the validation split, and of the test split.")
    classes: Annotated[int, Field(ge=2)] = Field(4, description="Number of classes, all equally frequent.")
    length: PositiveInt = Field(64, description="Tokens of a text.")
    vocabulary: PositiveInt = Field(1_000, description="Number of different tokens.")
    words_per_class: PositiveInt = Field(50, description="Keywords of each class; no two classes share one.")
    keywords: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Probability that a token is a keyword of the text's class instead of any token."
    )
    seed: NonNegativeInt = Field(0, description="Seed of the texts; run.seed does not change them.")

    @model_validator(mode="after")
    def _keywords_fit_the_vocabulary(self) -> SyntheticTextOptions:
        needed = self.classes * self.words_per_class
        if needed > self.vocabulary:
            raise ValueError(
                f"classes x words_per_class = {self.classes} x {self.words_per_class} = {needed} keywords, but "
                f"vocabulary={self.vocabulary}"
            )
        return self


class DiabetesOptions(Section):
    """Options of `diabetes`: none."""


class TextOptions(Section):
    """Options of `python_reference` and `text_files`."""

    length: Annotated[int, Field(ge=2)] = Field(64, description="Tokens of one sample.")
    tokenizer: Literal["bytes", "bpe"] = Field(
        "bytes",
        description="bytes (a token is a byte) | bpe (byte-pair encoding: a vocabulary is learned from the training split).",
    )
    vocabulary: Annotated[int, Field(gt=SMALLEST_VOCABULARY, le=2**20)] = Field(
        4096, description="Number of different tokens (tokenizer=bpe); a short text gives fewer."
    )

    @model_validator(mode="after")
    def _bytes_have_a_vocabulary(self) -> TextOptions:
        if self.tokenizer == "bytes" and "vocabulary" in self.model_fields_set:
            raise ValueError(f"vocabulary={self.vocabulary} is an option of tokenizer=bpe, got tokenizer=bytes")
        return self


class Cifar10Options(Section):
    """Options of `cifar10`: none."""


class ImageFolderOptions(Section):
    """Options of `image_folder`."""

    image_size: Annotated[int, Field(ge=8)] = Field(224, description="Height and width that images are resized to.")
    orientation: Orientation = Field("exif", description=f"{_ORIENTATION}.")


class ShuffleOptions(Section):
    """Options of the datasets whose samples are stored in groups: row groups of Parquet files, or shards."""

    shuffle: Literal["random", "windowed"] = Field(
        "random",
        description="Order of an epoch: random (over all samples) | windowed (over the samples of a few groups at a time, in which "
        "large row groups are read much faster).",
    )
    window: PositiveInt = Field(
        8,
        description="Row groups or shards whose samples are mixed (shuffle=windowed). Each process that reads keeps as many decoded row "
        "groups in memory.",
    )

    @model_validator(mode="after")
    def _only_windowed_has_a_window(self) -> Self:
        if self.shuffle == "random" and "window" in self.model_fields_set:
            raise ValueError(f"window={self.window} is an option of shuffle=windowed, got shuffle=random")
        return self

    def fingerprinted(self) -> dict[str, OptionValue]:
        """The options that determine the samples or their order; `random` is left out, as before there was another order.

        What the targets are is in their own hash, and the orientation of images in `image_fingerprints`.
        """
        order = set() if self.shuffle == "windowed" else {"shuffle", "window"}
        return self.model_dump(exclude={"cache_mib", "targets", "orientation"} | order)


class ParquetOptions(ShuffleOptions):
    """Options of `parquet`."""

    kind: Literal["features", "tokens", "images"] = Field(
        "features", description="features (numbers) | tokens (one list of token ids) | images (one encoded file)."
    )
    inputs: Annotated[list[str], Field(min_length=1)] = Field(
        description="Columns of the input: columns of numbers or one of lists (features), one of lists (tokens), one of bytes (images)."
    )
    target: str | None = Field(
        None,
        description="Column of the target. null, with tokens only, is the token that follows each.",
    )
    targets: TargetKind | None = Field(
        None,
        description="What the targets are. null: what the objective needs; for an objective of your own, integers and strings are classes, "
        "and floats and lists of them are values.",
    )
    vocabulary: PositiveInt | None = Field(None, description="Number of different tokens (kind=tokens).")
    image_size: Annotated[int, Field(ge=8)] = Field(
        224, description="Height and width that images are resized to (kind=images)."
    )
    orientation: Orientation = Field("exif", description=f"{_ORIENTATION}; kind=images.")
    cache_mib: PositiveInt = Field(
        256,
        description="Decoded row groups, in MiB, that each process that reads keeps; a single larger one, and those of the window, are "
        "kept too. Does not change the samples.",
    )

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> ParquetOptions:
        if self.kind != "features" and len(self.inputs) > 1:
            raise ValueError(f"inputs={self.inputs} has {len(self.inputs)} columns, but kind={self.kind} takes one")
        if self.kind != "tokens" and self.target is None:
            raise ValueError(f"target is not set, but kind={self.kind} needs the column of the target")
        if (self.kind == "tokens") != (self.vocabulary is not None):
            raise ValueError(
                f"vocabulary={self.vocabulary}: kind=tokens needs it and no other kind has it, got kind={self.kind}"
            )
        for name in sorted({"image_size", "orientation"} & self.model_fields_set):
            if self.kind != "images":
                raise ValueError(f"{name}={getattr(self, name)} is an option of kind=images, got kind={self.kind}")
        if self.target in self.inputs:
            raise ValueError(f"target={self.target} is one of inputs={self.inputs}")
        return self


class TarShardsOptions(ShuffleOptions):
    """Options of `tar_shards`."""

    image_size: Annotated[int, Field(ge=8)] = Field(224, description="Height and width that images are resized to.")
    orientation: Orientation = Field("exif", description=f"{_ORIENTATION}.")
    target: Annotated[
        str, Matching(r"^[a-z0-9_.]+(:.+)?$", "must be the suffix of a member, e.g. cls, or json:FIELD, in lower case")
    ] = Field(
        "cls",
        description="Member with the class, a number or a name: its suffix, or json:FIELD for a field of a JSON object.",
    )
