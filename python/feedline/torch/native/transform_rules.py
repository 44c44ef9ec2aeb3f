"""Translates one torchvision transform into the op that equals it.

In: a transform of ``torchvision.transforms`` or ``torchvision.transforms.v2``, and the form of the picture before it.
Out: the op, or none if the transform changes nothing, and the form after it. A transform without an equal op raises
``NotNativeError``, whose text says why.

Equal means: within 1/255 of torchvision for transforms without randomness, and the same distribution of the drawn
parameters for random ones. Rules read only the parameters of a transform and never call it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from feedline import ops
from feedline.ops import Op
from feedline.torch.native.exact_types import is_exactly, replaced_method
from feedline.torch.native.python_transform import Kind
from feedline.torch.native.transform_parameters import (
    NotNativeError,
    fill_value,
    float_range,
    floats,
    height_and_width,
    padding_sides,
    per_channel,
    side_lengths,
    whole_number,
)

Version = Literal["v1", "v2"]
MODULES: dict[Version, str] = {"v1": "torchvision.transforms", "v2": "torchvision.transforms.v2"}
_PIL_INTERPOLATIONS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class Form:
    """What a transform receives.

    Attributes:
        kind: a PIL picture, a uint8 tensor or a float32 tensor.
        channels: 1 or 3.
        is_normalized: whether ``Normalize`` has changed the values, so that 0 is no longer black.
        is_erased: whether ``RandomErasing`` has changed a float tensor.
    """

    kind: Kind = "PIL"
    channels: int = 3
    is_normalized: bool = False
    is_erased: bool = False


Step = tuple[Op | None, Form]


def version_of(transform: object) -> Version | None:
    """Return which torchvision API a transform belongs to; ``None`` for other objects and for subclasses."""
    name = type(transform).__name__
    return next((version for version, module in MODULES.items() if is_exactly(transform, module, name)), None)


def step_for(transform: Any, form: Form) -> Step:
    """Return the op for a transform and the form after it. Raise ``NotNativeError`` if there is none."""
    if is_exactly(transform, "torch.nn", "Identity"):
        return None, form
    version = version_of(transform)
    if version is None:
        raise NotNativeError("it is not a transform of torchvision itself")
    replaced = replaced_method(transform)
    if replaced is not None:
        raise NotNativeError(f"this object has its own {replaced}")
    rule = _RULES.get(type(transform).__name__)
    if rule is None:
        raise NotNativeError("Feedline has no such op")
    try:
        return rule(transform, form, version)
    except (AttributeError, TypeError, ValueError) as error:
        raise NotNativeError(f"its parameters are unusual: {error}") from None


def _identity(transform: Any, form: Form, version: Version) -> Step:
    return None, form


def _to_tensor(transform: Any, form: Form, version: Version) -> Step:
    if form.kind != "PIL":
        return _already_tensor(form, version)
    if torch.get_default_dtype() is not torch.float32:
        raise NotNativeError(f"torch's default dtype is {torch.get_default_dtype()}, not torch.float32")
    return ops.ToTensor(), replace(form, kind="float32")


def _to_uint8(transform: Any, form: Form, version: Version) -> Step:
    # The op that converts pixels comes at the end of the chain: ops that change pixels may follow.
    return (None, replace(form, kind="uint8")) if form.kind == "PIL" else _already_tensor(form, version)


def _already_tensor(form: Form, version: Version) -> Step:
    if version == "v1":
        raise NotNativeError("it takes a PIL picture, but receives a tensor")
    return None, form


def _to_dtype(transform: Any, form: Form, version: Version) -> Step:
    if form.kind == "PIL":
        return None, form  # v2.ToDtype passes PIL pictures through.
    return _converted(transform.dtype, bool(transform.scale), form)


def _convert_image_dtype(transform: Any, form: Form, version: Version) -> Step:
    if form.kind == "PIL":
        raise NotNativeError("it takes a tensor, but receives a PIL picture")
    return _converted(transform.dtype, True, form)


def _converted(dtype: Any, is_scaled: bool, form: Form) -> Step:
    if not isinstance(dtype, torch.dtype):
        raise NotNativeError("it has a dtype for each type of tensor")
    if str(dtype) == f"torch.{form.kind}":
        return None, form
    if form.kind == "float32" or dtype is not torch.float32:
        raise NotNativeError(f"it converts {form.kind} to {dtype}; Feedline converts uint8 to torch.float32")
    if not is_scaled:
        raise NotNativeError("it does not scale values to [0, 1]; Feedline does")
    return ops.ToTensor(), replace(form, kind="float32")


def _normalize(transform: Any, form: Form, version: Version) -> Step:
    if form.kind != "float32":
        raise NotNativeError("it takes a float tensor; convert the picture before it")
    mean, std = (per_channel(values, form.channels) for values in (transform.mean, transform.std))
    return ops.Normalize(mean, std), replace(form, is_normalized=True)


def _resize(transform: Any, form: Form, version: Version) -> Step:
    if transform.size is None:
        raise NotNativeError("it resizes by the longer side")
    sides = side_lengths(transform.size)
    size = sides[0] if len(sides) == 1 else (sides[0], sides[1])
    max_size = None if transform.max_size is None else whole_number(transform.max_size)
    return ops.Resize(size, _interpolation(transform, form, version), max_size), form


def _random_resized_crop(transform: Any, form: Form, version: Version) -> Step:
    scale, ratio = float_range(transform.scale), float_range(transform.ratio)
    return ops.RandomResizedCrop(
        height_and_width(transform.size), scale, ratio, _interpolation(transform, form, version)
    ), form


def _center_crop(transform: Any, form: Form, version: Version) -> Step:
    # A picture that is smaller than the crop is padded with zeros, which are black only before Normalize.
    _check_order(form, pads_black=True)
    return ops.CenterCrop(height_and_width(transform.size)), form


def _random_crop(transform: Any, form: Form, version: Version) -> Step:
    padding = padding_sides(transform.padding, is_v2=version == "v2")
    mode, if_needed = transform.padding_mode, bool(transform.pad_if_needed)
    pads = padding is not None or if_needed
    if padding is not None and if_needed and mode in ("reflect", "symmetric"):
        raise NotNativeError(f"padding and pad_if_needed together mirror the picture twice with {mode!r}")
    fill = fill_value(transform.fill) if pads and mode == "constant" else 0
    if fill != 0 and form.kind == "float32":
        raise NotNativeError("fill is a value of a float tensor; Feedline pads pixels")
    _check_order(form, pads_black=pads and mode == "constant")
    return ops.RandomCrop(height_and_width(transform.size), padding, if_needed, fill, mode), form


def _flip(op: type[ops.RandomHorizontalFlip] | type[ops.RandomVerticalFlip]) -> Rule:
    def rule(transform: Any, form: Form, version: Version) -> Step:
        _check_order(form, pads_black=False)
        return op(float(transform.p)), form

    return rule


def _color_jitter(transform: Any, form: Form, version: Version) -> Step:
    _check_pixels(form)
    if form.channels == 1:
        raise NotNativeError("the picture is grey; Feedline changes colours of RGB pictures")
    if transform.hue is not None and form.kind == "PIL":
        raise NotNativeError(
            "hue on PIL pictures has coarser steps, which differ by more than 1/255; put v2.ToImage before"
        )
    # torchvision has already turned numbers into ranges; None is a factor that it leaves alone.
    given = (transform.brightness, transform.contrast, transform.saturation, transform.hue)
    if not any(given):
        return None, form
    brightness, contrast, saturation, hue = (0.0 if values is None else float_range(values) for values in given)
    return ops.ColorJitter(brightness, contrast, saturation, hue), form


def _grayscale(transform: Any, form: Form, version: Version) -> Step:
    _check_pixels(form)
    channels = whole_number(transform.num_output_channels)
    if form.channels == channels == 1:
        return None, form
    if form.channels == 1:
        raise NotNativeError("the picture is grey already")
    return ops.Grayscale(channels), replace(form, channels=channels)


def _rgb(transform: Any, form: Form, version: Version) -> Step:
    if form.channels != 3:
        raise NotNativeError("the picture is grey; Feedline has no op that makes it RGB")
    return None, form


def _random_erasing(transform: Any, form: Form, version: Version) -> Step:
    if form.kind == "PIL":
        raise NotNativeError("it takes a tensor; convert the picture before it")
    value = _erasing_value(transform.value, form)
    erased = replace(form, is_erased=form.kind == "float32")
    return ops.RandomErasing(
        float(transform.p), float_range(transform.scale), float_range(transform.ratio), value
    ), erased


def _erasing_value(value: Any, form: Form) -> float | tuple[float, ...] | Literal["random"]:
    # v2 stores "random" as None and a number as a list of one.
    if value is None or isinstance(value, str):
        if form.kind == "uint8":
            raise NotNativeError("noise of a uint8 tensor is not defined")
        return "random"
    numbers = floats(value)
    if len(numbers) not in (1, form.channels):
        raise NotNativeError(f"value has {len(numbers)} numbers, but the picture has {form.channels} channels")
    if form.kind == "uint8" and not all(number in range(256) for number in numbers):
        raise NotNativeError("value is not a whole number from 0 to 255, as a uint8 tensor needs")
    return numbers[0] if len(numbers) == 1 else numbers


def _check_pixels(form: Form) -> None:
    if form.kind == "float32":
        raise NotNativeError("it comes after the conversion to floats; Feedline changes pixels before")


def _check_order(form: Form, *, pads_black: bool) -> None:
    """Raise unless the op gives the same result before the conversion to floats. There Feedline runs it."""
    if form.is_erased:
        raise NotNativeError("it comes after RandomErasing; Feedline moves pixels before")
    if form.is_normalized and pads_black:
        raise NotNativeError("it may pad with zeros after Normalize; Feedline pads pixels before")


def _interpolation(transform: Any, form: Form, version: Version) -> ops.Interpolation:
    _check_pixels(form)
    given = transform.interpolation
    name = _PIL_INTERPOLATIONS.get(given, given) if isinstance(given, int) else getattr(given, "value", given)
    if form.kind == "PIL":
        # Pillow has one kind of nearest neighbour, and always antialiases the others.
        if name == "bilinear":
            return "bilinear"
        if name in ("nearest", "nearest-exact"):
            return "nearest"
        if name == "bicubic":
            raise NotNativeError(
                "bicubic on PIL pictures rounds differently, by more than 1/255; put v2.ToImage before"
            )
    elif name in ("bilinear", "bicubic"):
        if transform.antialias is not True:
            raise NotNativeError("antialias is off for tensors; Feedline always antialiases")
        if name == "bilinear":
            return "bilinear"
        if version == "v2":
            return "bicubic"
        raise NotNativeError("bicubic of v1 rounds differently on tensors, by more than 1/255; take it from v2")
    raise NotNativeError(f"interpolation {name!r} is not available for {_NOUNS[form.kind]}")


_NOUNS: dict[Kind, str] = {"PIL": "PIL pictures", "uint8": "uint8 tensors", "float32": "float tensors"}


Rule = Callable[[Any, Form, Version], Step]

_RULES: dict[str, Rule] = {
    "CenterCrop": _center_crop,
    "ColorJitter": _color_jitter,
    "ConvertImageDtype": _convert_image_dtype,
    "Grayscale": _grayscale,
    "Identity": _identity,
    "Normalize": _normalize,
    "PILToTensor": _to_uint8,
    "RGB": _rgb,
    "RandomCrop": _random_crop,
    "RandomErasing": _random_erasing,
    "RandomHorizontalFlip": _flip(ops.RandomHorizontalFlip),
    "RandomResizedCrop": _random_resized_crop,
    "RandomVerticalFlip": _flip(ops.RandomVerticalFlip),
    "Resize": _resize,
    "ToDtype": _to_dtype,
    "ToImage": _to_uint8,
    "ToPureTensor": _identity,
    "ToTensor": _to_tensor,
}
"""Rules by the name of the class, which is the same in v1 and v2."""
