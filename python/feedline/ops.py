"""Ops: functions that change samples.

Ops of pictures have the names, parameters, defaults and distributions of torchvision. Ops of volumes follow MLPerf's
3D U-Net. An op selects fields by name: ``on=("image", "mask")`` applies the same random draw to both. Masks
(see :class:`DecodeImage`) are always resized by nearest neighbour. ``docs/how-to/transforms.md`` lists the differences
from torchvision.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from feedline.arguments import one_of
from feedline.errors import PlanError
from feedline.functions import NativeFunction, names_of, pickled_function, shape_of
from feedline.worker.functions import asked_for

__all__ = [
    "Cast",
    "CenterCrop",
    "ClipNormalize",
    "ColorJitter",
    "DecodeImage",
    "GaussianNoise",
    "Grayscale",
    "Map",
    "MapBatch",
    "Normalize",
    "Op",
    "PadTo",
    "RandomBalancedCrop",
    "RandomBrightness",
    "RandomCrop",
    "RandomErasing",
    "RandomFlip3d",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "ResampleSpacing",
    "Resize",
    "ToTensor",
]

Size = int | tuple[int, int]
Size3d = int | tuple[int, int, int]
Interpolation = Literal["nearest", "bilinear", "bicubic"]
Layout = Literal["CHW", "HWC"]
Dtype = Literal["uint8", "float16", "bfloat16", "float32"]
On = str | tuple[str, ...]
Shape = tuple[Any, Sequence[int]]
"""The dtype and the sides of an array."""


class Op:
    """Base class of ops. Ops are plain data: ops with equal parameters are equal.

    >>> ops.Resize(256) == ops.Resize(256, interpolation="bilinear")
    True
    """

    _is_on_batches: ClassVar[bool] = False

    def _to_native(self) -> Any:
        """Return the op for the native module."""
        return self._table()

    def _table(self) -> dict[str, Any]:
        """Return the op as a table of a plan, without parameters that are ``None``."""
        table: dict[str, Any] = {"op": type(self).__name__}
        for parameter in fields(self):  # type: ignore[arg-type]
            value = getattr(self, parameter.name)
            if value is not None:
                table[parameter.name] = _plain(value)
        return table


def _plain(value: Any) -> Any:
    """Turn tuples into lists, enums into their values, and NumPy or torch names into text."""
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    # NumPy scalars and arrays, and torch tensors.
    if hasattr(value, "tolist"):
        return value.tolist()
    # dtypes: np.float16 has a name, torch.float16 prints as "torch.float16".
    name = getattr(value, "__name__", None) or str(value)
    return name.removeprefix("torch.")


@dataclass(frozen=True)
class DecodeImage(Op):
    """Decode JPEG, PNG, WebP, TIFF, BMP, PPM, PGM or the first frame of a GIF to 8-bit pixels.

    The format is recognised by the content of a file, not by its name. ``mode="auto"`` decodes fields called ``mask``
    or ``..._mask`` to one channel of labels (palette index or grey value), and all others to RGB. Grey, palette and
    CMYK pictures are converted to RGB. Alpha is dropped, and of 16 bits the high byte is kept. ``exif`` rotates
    pictures by their EXIF orientation. A picture of more than ``max_pixels`` pixels is refused before memory is
    allocated. Of a TIFF, the first picture is decoded: grey, RGB or palette, in strips or tiles, uncompressed or with
    LZW, deflate or PackBits.

    ``dtype="uint16"`` delivers 16 bits a channel. PNG and TIFF of 16 bits keep all of them, and 8 bits are stretched:
    255 becomes 65535. Only crops, flips, ``ToTensor`` and ``Normalize`` take such pictures. Masks keep 8 bits.

    If a crop follows, only the part that it needs is decoded, of a JPEG, WebP, PNG or TIFF. The pixels equal those of a
    full decode.
    ``fast=True`` is faster and gives approximate pixels. It decodes JPEGs with a less exact transform, and at 1/2, 1/4
    or 1/8 of their size if the crop is at least 2, 4 or 8 times as large as its resized result.
    ``docs/concepts/seek-index.md`` shows how much pixels differ.

    >>> chain = [ops.DecodeImage(max_pixels=50_000_000), ops.Resize((224, 224))]
    >>> deep = [ops.DecodeImage(mode="grey", dtype="uint16"), ops.CenterCrop(64), ops.Normalize(mean=[0.5], std=[0.2])]
    """

    on: On = "image"
    exif: bool = True
    mode: Literal["auto", "rgb", "grey", "mask"] = "auto"
    dtype: Literal["uint16"] | None = None
    fast: bool = False
    max_pixels: int = 178_956_970


@dataclass(frozen=True)
class Resize(Op):
    """Resize with antialiasing. One number is the shorter side, two are height and width.

    >>> chain = [ops.DecodeImage(), ops.Resize(256), ops.CenterCrop(224)]
    """

    size: Size
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None
    on: On = "image"


@dataclass(frozen=True)
class CenterCrop(Op):
    """Crop the centre. Smaller pictures are padded with zeros.

    >>> chain = [ops.DecodeImage(), ops.Resize(256), ops.CenterCrop(224)]
    """

    size: Size
    on: On = "image"


@dataclass(frozen=True)
class RandomCrop(Op):
    """Crop a part of fixed size at a random place.

    >>> chain = [ops.DecodeImage(), ops.RandomCrop(32, padding=4)]
    """

    size: Size
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int = 0
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"
    on: On = "image"


@dataclass(frozen=True)
class RandomResizedCrop(Op):
    """Crop a part of random area and aspect ratio, and resize it.

    >>> chain = [ops.DecodeImage(), ops.RandomResizedCrop(224, scale=(0.25, 1.0))]
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    on: On = "image"


@dataclass(frozen=True)
class RandomHorizontalFlip(Op):
    """Mirror left and right with probability ``p``.

    >>> chain = [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.RandomHorizontalFlip()]
    """

    p: float = 0.5
    on: On = "image"


@dataclass(frozen=True)
class RandomVerticalFlip(Op):
    """Mirror top and bottom with probability ``p``.

    >>> chain = [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.RandomVerticalFlip(p=0.1)]
    """

    p: float = 0.5
    on: On = "image"


@dataclass(frozen=True)
class ColorJitter(Op):
    """Change brightness, contrast, saturation and hue at random, in random order.

    A number ``v`` means a factor between ``1 - v`` and ``1 + v``. For hue it means a turn between ``-v`` and ``v``, at
    most 0.5. A pair gives the lower and the upper limit directly.

    >>> op = ops.ColorJitter(brightness=0.4, contrast=(0.6, 1.4), hue=0.1)
    """

    brightness: float | tuple[float, float] = 0.0
    contrast: float | tuple[float, float] = 0.0
    saturation: float | tuple[float, float] = 0.0
    hue: float | tuple[float, float] = 0.0
    on: On = "image"


@dataclass(frozen=True)
class Grayscale(Op):
    """Convert to grey, with one channel or three equal ones.

    >>> chain = [ops.DecodeImage(), ops.Grayscale(num_output_channels=3)]
    """

    num_output_channels: int = 1
    on: On = "image"


@dataclass(frozen=True)
class RandomErasing(Op):
    """Erase a random rectangle with probability ``p``.

    ``value`` is a number for all channels, a sequence with one number per channel, or ``"random"`` for normal noise.

    >>> chain = [ops.DecodeImage(), ops.Resize((224, 224)), ops.Normalize(), ops.RandomErasing(p=0.25, value="random")]
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | Sequence[float] | Literal["random"] = 0.0
    on: On = "image"


@dataclass(frozen=True)
class ToTensor(Op):
    """Convert pixels to a tensor: floats in [0, 1], or the bytes themselves for ``dtype="uint8"``.

    >>> chain = [ops.DecodeImage(), ops.Resize((224, 224)), ops.ToTensor(dtype="uint8", layout="HWC")]
    """

    dtype: Dtype = "float32"
    layout: Layout = "CHW"
    on: On = "image"


@dataclass(frozen=True)
class Normalize(Op):
    """Subtract ``mean`` and divide by ``std`` per channel (default: ImageNet's). Pixels become a tensor first.

    >>> op = ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), dtype="float16")
    """

    mean: Sequence[float] = (0.485, 0.456, 0.406)
    std: Sequence[float] = (0.229, 0.224, 0.225)
    dtype: Literal["float16", "bfloat16", "float32"] = "float32"
    layout: Layout = "CHW"
    on: On = "image"


@dataclass(frozen=True)
class ResampleSpacing(Op):
    """Resample volumes to a spacing in millimetres: images trilinearly, labels by the nearest element.

    A side becomes ``floor(side * old spacing / new spacing)``. For images, the first and the last element of the old
    and the new grid coincide (torch's ``align_corners=True``). For labels, element ``i`` of the new side ``n`` is
    element ``floor(i * m / n)`` of the old side ``m``.

    >>> chain = [ops.ResampleSpacing((1.6, 1.2, 1.2)), ops.ClipNormalize(), ops.PadTo(128)]
    """

    spacing: tuple[float, float, float] = (1.6, 1.2, 1.2)
    on: On = ("image", "label")


@dataclass(frozen=True)
class ClipNormalize(Op):
    """Clip a volume's values to ``low`` and ``high``, then subtract ``mean`` and divide by ``std``.

    >>> op = ops.ClipNormalize(low=-1000, high=400, mean=0, std=500)
    """

    low: float = -79.0
    high: float = 304.0
    mean: float = 101.0
    std: float = 76.9
    on: On = "image"


@dataclass(frozen=True)
class PadTo(Op):
    """Pad volumes at both ends of each axis to at least ``size``.

    Images are padded with ``fill``, labels with 0. With ``mode="edge"``, both are padded with their nearest element.

    >>> op = ops.PadTo((128, 160, 160), mode="edge")
    """

    size: Size3d
    fill: float = -2.2
    mode: Literal["constant", "edge"] = "constant"
    on: On = ("image", "label")


@dataclass(frozen=True)
class RandomBalancedCrop(Op):
    """Crop a part of fixed size: with probability ``oversampling`` around the foreground, otherwise anywhere.

    For a crop around the foreground, the op chooses a random class of the label, and one of the boxes around the two
    largest components of that class. The crop is at a random place where it contains the box. Along an axis where the
    box is longer than the crop, the crop lies inside the box. From files that are not compressed, only the crop is
    read.

    >>> op = ops.RandomBalancedCrop(128, oversampling=0.4)
    """

    size: Size3d
    oversampling: float = 0.4
    on: On = ("image", "label")


@dataclass(frozen=True)
class RandomFlip3d(Op):
    """Mirror volumes along depth, height and width, each with probability ``p``.

    >>> op = ops.RandomFlip3d(p=0.5)
    """

    p: float = 1 / 3
    on: On = ("image", "label")


@dataclass(frozen=True)
class Cast(Op):
    """Change the element type of volumes: images to ``dtype``, labels to ``label_dtype``.

    >>> op = ops.Cast(dtype="float16")
    """

    dtype: str = "float32"
    label_dtype: str = "uint8"
    on: On = ("image", "label")


@dataclass(frozen=True)
class RandomBrightness(Op):
    """With probability ``p``, multiply a volume by a number between ``1 - factor`` and ``1 + factor``.

    >>> op = ops.RandomBrightness(0.3, p=0.1)
    """

    factor: float = 0.3
    p: float = 0.1
    on: On = "image"


@dataclass(frozen=True)
class GaussianNoise(Op):
    """With probability ``p``, add Gaussian noise to a volume, with a standard deviation between 0 and ``std``.

    >>> op = ops.GaussianNoise(0.1, p=0.1)
    """

    std: float = 0.1
    p: float = 0.1
    on: On = "image"


@dataclass(frozen=True)
class Map(Op):
    """Call a Python function for each sample, between native ops that stay native.

    The function gets one argument per field of ``on`` and returns one result per field of ``out`` (by default those of
    ``on``). Pictures are uint8 arrays of height x width x channels, encoded fields are ``bytes``. Results are arrays of
    any dtype and shape, numbers, text, or ``bytes`` that a decoder may follow. A field of ``on`` that is not in ``out``
    is dropped.

    After these, a function may have parameters with the following names, with or without a default. Random numbers from
    ``rng`` and ``generator`` make a sample reproducible, for any number of workers and after a resume:

    - ``rng``: a NumPy ``Generator`` seeded for this sample, epoch and op; ``generator``: a torch ``Generator``
    - ``index``, ``epoch`` and ``key``: of the sample

    Args:
        fn: a function, or ``"module:function"``. Only a function that can be imported by name can be written into a
            plan.
        on: the fields that the function gets.
        out: the fields of its results. ``()`` drops the fields of ``on``.
        shapes: the results whose shape is the same for all samples: ``{"image": ("float32", (3, 224, 224))}``. They
            are then written into one array. With ``share`` undeclared shapes are learnt from the first sample.
        deterministic: declare that the same input always gives the same output, so that the result may be cached.
        version: change it when the function reads something new that is not its code, such as a file.
        worker_type: ``"thread"`` calls the function on the engine's threads, of which only one at a time runs Python,
            because of the GIL. ``"process"`` calls it in worker processes, one for each thread. There the global
            generators of ``random``, NumPy and torch are seeded before each sample, too.

    >>> def add_noise(image, rng):
    ...     return np.clip(image + rng.normal(0, 8, image.shape), 0, 255).astype("uint8")
    >>> chain = [ops.DecodeImage(), ops.Map(add_noise, worker_type="process"), ops.Resize((224, 224))]
    """

    fn: str | Callable[..., Any]
    on: On = "image"
    out: On | None = None
    shapes: Mapping[str, Shape] | None = None
    deterministic: bool = False
    version: int = 0
    worker_type: Literal["thread", "process"] = "thread"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by its name, or by cloudpickle if the program uses it."""
        # A dataclass would pickle the function by reference, which fails for lambdas.
        fn = self.fn if isinstance(self.fn, str) else pickled_function(self.fn)
        return _unpickled, (fn, *(getattr(self, field.name) for field in fields(self)[1:]))

    def _to_native(self) -> Any:
        """Return a table for a named function, and the function itself otherwise."""
        one_of("ops.Map: worker_type", self.worker_type, ("thread", "process"))
        if not isinstance(self.version, int) or self.version < 0:
            raise PlanError(f"ops.Map: version is {self.version!r}; it must be a whole number from 0 on")
        shapes = {field: shape_of(field, shape) for field, shape in (self.shapes or {}).items()}
        if isinstance(self.fn, str):
            table: dict[str, Any] = replace(self, shapes=None)._table()
            tables = {field: {"dtype": dtype, "shape": shape} for field, (dtype, shape) in shapes.items()}
            return table | ({"shapes": tables} if tables else {})
        if not callable(self.fn):
            raise PlanError(f'ops.Map takes a function or "module:function", not {self.fn!r}')
        changing = set(asked_for(self.fn, len(names_of(self.on)))) & {"rng", "generator", "epoch"}
        if self.deterministic and changing and not getattr(self.fn, "is_deterministic", False):
            raise PlanError(
                f"ops.Map: deterministic=True, but the function asks for {min(changing)!r}, which differs each epoch"
            )
        on, out = names_of(self.on), None if self.out is None else names_of(self.out)
        is_process = self.worker_type == "process"
        return NativeFunction(self.fn, on, out, shapes, bool(self.deterministic), int(self.version), is_process)


@dataclass(frozen=True)
class MapBatch(Op):
    """Call a Python function for each whole batch, ahead of the training step. It comes after all other ops.

    The function gets one array per field of ``on``, samples first, and returns one array per field of ``out``, with as
    many samples. It may ask for ``rng``, ``generator`` and ``epoch`` like the function of :class:`Map`. Their random
    numbers depend on seed, epoch and the place of the batch in the epoch, so a resume gives the same batches. Jobs that
    share samples call their own functions on batches, so these may differ between jobs.

    Args:
        fn: a function. A plan with one cannot be written down.
        on: the fields that the function gets.
        out: the fields of its results, by default those of ``on``. ``()`` drops the fields of ``on``.
        worker_type: ``"thread"`` or ``"process"``, as for :class:`Map`.

    >>> def mix(image, label, rng):
    ...     share, other = rng.beta(1, 1), rng.permutation(len(image))
    ...     return share * image + (1 - share) * image[other], share * label + (1 - share) * label[other]
    >>> chain = [ops.DecodeImage(), ops.Resize((64, 64)), ops.Normalize(), ops.MapBatch(mix, on=("image", "label"))]
    """

    _is_on_batches: ClassVar[bool] = True

    fn: Callable[..., Any]
    on: On = "image"
    out: On | None = None
    worker_type: Literal["thread", "process"] = "thread"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function like :class:`Map`."""
        return _unpickled_batch, (pickled_function(self.fn), self.on, self.out, self.worker_type)

    def _to_native(self) -> Any:
        """Return the function and its parameters."""
        one_of("ops.MapBatch: worker_type", self.worker_type, ("thread", "process"))
        if not callable(self.fn):
            raise PlanError(f"ops.MapBatch takes a function, not {self.fn!r}")
        on, out = names_of(self.on), None if self.out is None else names_of(self.out)
        asked = set(asked_for(self.fn, len(on))) & {"index", "key"}
        if asked:
            raise PlanError(f"ops.MapBatch: the function asks for {min(asked)!r}, which only samples have")
        return NativeFunction(self.fn, on, out, {}, False, 0, self.worker_type == "process")


def _unpickled_batch(fn: bytes, *parameters: Any) -> MapBatch:
    return MapBatch(pickle.loads(fn), *parameters)


def _unpickled(fn: str | bytes, *parameters: Any) -> Map:
    return Map(fn if isinstance(fn, str) else pickle.loads(fn), *parameters)
