"""Cases of ``streams.py`` for every op, with every parameter and every value of those that are a choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mapped
import numpy as np
from stream_case import case
from stream_inputs import Inputs

import feedline as fl
from feedline import ops

BOTH = ("image", "mask")
DECODE = ops.DecodeImage()
PARTS = {"image": ("uint8", (20, 24, 3)), "noise": ("int64", (3,))}
"""The results of ``mapped.parts``."""
SMALL = ops.Resize((20, 24))


def reversed_sum(image: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Work on two fields: integers alone, so no library version changes a value."""
    return image[::-1].astype(np.int32) + mask[..., None], mask.T.copy()


def chains(**given: Sequence[ops.Op]) -> dict[str, dict[str, Any]]:
    return {name: {"chain": list(chain)} for name, chain in given.items()}


@case(
    chains(
        exact=[DECODE, ops.RandomResizedCrop(8)],
        fast=[ops.DecodeImage(fast=True), ops.RandomResizedCrop(8)],
        fast_center=[ops.DecodeImage(fast=True), ops.Resize(20), ops.CenterCrop(16)],
        grey=[ops.DecodeImage(mode="grey"), ops.RandomCrop(24)],
        deep=[ops.DecodeImage(dtype="uint16"), ops.RandomCrop(24), ops.RandomHorizontalFlip()],
        rgb=[ops.DecodeImage(mode="rgb", max_pixels=10_000), ops.CenterCrop((30, 20))],
        resize_side=[DECODE, ops.Resize(24, max_size=40), ops.CenterCrop(24)],
        resize_nearest=[DECODE, ops.Resize((20, 31), "nearest")],
        resize_bicubic=[DECODE, ops.Resize((50, 31), "bicubic")],
        resize_bilinear=[DECODE, ops.Resize((100, 17))],
        center_crop_padded=[DECODE, ops.CenterCrop((100, 40))],
        random_crop_constant=[DECODE, ops.RandomCrop(40, padding=4, fill=77)],
        random_crop_edge=[DECODE, ops.RandomCrop((90, 60), padding=[3, 5], pad_if_needed=True, padding_mode="edge")],
        random_crop_reflect=[DECODE, ops.RandomCrop(36, padding=[1, 2, 3, 4], padding_mode="reflect")],
        random_crop_symmetric=[DECODE, ops.RandomCrop(36, padding=6, padding_mode="symmetric")],
        crop_nearest=[DECODE, ops.RandomResizedCrop((12, 18), scale=(0.3, 0.6), interpolation="nearest")],
        crop_bicubic=[DECODE, ops.RandomResizedCrop(48, ratio=(0.5, 2.0), interpolation="bicubic")],
        flips=[DECODE, SMALL, ops.RandomHorizontalFlip(), ops.RandomVerticalFlip(), ops.RandomHorizontalFlip(p=0.8)],
        vertical_flip=[DECODE, SMALL, ops.RandomVerticalFlip(p=0.3)],
        jitter=[DECODE, SMALL, ops.ColorJitter(0.4, 0.3, 0.2, 0.1)],
        jitter_ends=[DECODE, SMALL, ops.ColorJitter((0.2, 0.9), (1.1, 1.9), (0.0, 0.5), (-0.4, 0.2))],
        brightness=[DECODE, SMALL, ops.ColorJitter(brightness=0.5)],
        contrast=[DECODE, SMALL, ops.ColorJitter(contrast=0.5)],
        saturation=[DECODE, SMALL, ops.ColorJitter(saturation=0.5)],
        hue=[DECODE, SMALL, ops.ColorJitter(hue=0.5)],
        grayscale=[DECODE, SMALL, ops.Grayscale()],
        grayscale_rgb=[DECODE, SMALL, ops.Grayscale(3), ops.Normalize()],
        erasing=[DECODE, SMALL, ops.RandomErasing()],
        erasing_tensor=[DECODE, SMALL, ops.ToTensor(), ops.RandomErasing(0.9, (0.1, 0.2), (0.5, 2.0), [0.1, 0.2, 0.3])],
        erasing_noise=[DECODE, SMALL, ops.Normalize(), ops.RandomErasing(p=0.9, value="random")],
        erasing_pixels_noise=[DECODE, SMALL, ops.RandomErasing(p=0.9, value="random")],
        tensor_uint8=[DECODE, SMALL, ops.ToTensor("uint8")],
        tensor_float16=[DECODE, SMALL, ops.ToTensor("float16", "HWC")],
        tensor_float32=[DECODE, SMALL, ops.ToTensor()],
        normalize=[DECODE, SMALL, ops.Normalize()],
        normalize_float16=[DECODE, SMALL, ops.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), "float16", "HWC")],
        normalize_tensor=[DECODE, SMALL, ops.ToTensor(), ops.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))],
        map_named=[DECODE, SMALL, ops.Map("mapped:invert", deterministic=True), ops.ToTensor()],
        map_function=[DECODE, SMALL, ops.Map(mapped.invert, version=3), ops.RandomCrop(12), ops.ToTensor("uint8")],
        map_fields=[DECODE, SMALL, ops.Map(mapped.parts, out=("image", "noise"), shapes=PARTS), ops.ToTensor()],
        map_process=[DECODE, SMALL, ops.Map("mapped:noisy", worker_type="process"), ops.ToTensor("uint8")],
        map_batch=[DECODE, SMALL, ops.MapBatch(mapped.mixed, on=("image", "label"), out=("image", "mean"))],
        map_batch_process=[DECODE, SMALL, ops.MapBatch(mapped.noisy, worker_type="process")],
        usual=[DECODE, ops.RandomResizedCrop(24), ops.RandomHorizontalFlip(), ops.ColorJitter(0.2), ops.Normalize()],
    )
)
def picture_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Apply a chain to JPEGs of many sizes."""
    return fl.Loader(fl.folder(inputs.jpegs), chain, batch_size=7, shuffle=True, seed=3, **options)


@case(
    chains(
        stored=[ops.DecodeImage(exif=False), SMALL],
        turned=[DECODE, SMALL],
        crops=[DECODE, ops.RandomCrop(12)],
        grey=[ops.DecodeImage(mode="grey"), SMALL],
    )
)
def format_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Apply a chain to pictures of all formats."""
    return fl.Loader(fl.folder(inputs.formats), chain, batch_size=6, shuffle=True, **options)


@case(
    chains(
        center_crop=[ops.CenterCrop(20, on=BOTH)],
        random_crop=[ops.RandomCrop(20, on=BOTH)],
        resized_crop=[ops.RandomResizedCrop(16, on=BOTH), ops.ToTensor()],
        flips=[ops.Resize((20, 24), on=BOTH), ops.RandomHorizontalFlip(on=BOTH), ops.RandomVerticalFlip(on=BOTH)],
        map_both=[ops.Resize((20, 24), on=BOTH), ops.Map(reversed_sum, on=BOTH, deterministic=True)],
    )
)
def mask_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Apply a chain to pictures with masks: one draw for both."""
    chain = [ops.DecodeImage(on=BOTH), *chain]
    return fl.Loader(fl.files(inputs.masked), chain, batch_size=4, shuffle=True, **options)


@case()
def labels_as_pictures(inputs: Inputs, **options: Any) -> fl.Loader:
    """Decode masks without a mask name: grey values, and the indices of a palette."""
    masks = [*inputs.masked["mask"], inputs.formats / "palette.png"]
    chain = [ops.DecodeImage(mode="mask"), ops.RandomResizedCrop(12)]
    return fl.Loader(fl.files({"image": masks}), chain, batch_size=4, **options)


@case(
    chains(
        jitter=[ops.ColorJitter(0.4, 0.3, 0.2, 0.1, on="data"), ops.ToTensor(on="data")],
        grey=[ops.Grayscale(on="data"), ops.RandomErasing(on="data")],
        normalize=[ops.Normalize(on="data")],
        bare=[],
    )
)
def array_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Apply a chain to pictures that are stored as an array."""
    return fl.Loader(fl.array(inputs.array, field="data"), chain, batch_size=6, shuffle=True, **options)


@case(
    chains(
        tensor=[DECODE, SMALL, ops.ToTensor("bfloat16")],
        normalize=[DECODE, SMALL, ops.Normalize(dtype="bfloat16", layout="HWC")],
    )
)
def bfloat16_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Deliver tensors of torch, whose element type NumPy does not have."""
    return fl.Loader(fl.folder(inputs.jpegs), chain, batch_size=7, shuffle=True, framework="torch", **options)


CROP = ops.RandomBalancedCrop((8, 9, 10))
WHOLE = ops.PadTo((20, 18, 20))
WHOLE_LABEL = ops.PadTo((20, 18, 20), on="label")


@case(
    {
        f"{name}.{ending.strip('.')}": {"chain": chain, "ending": ending}
        for name, chain in {
            "crop": [CROP],
            "crop_foreground": [ops.RandomBalancedCrop(7, oversampling=1.0)],
            "crop_anywhere": [ops.RandomBalancedCrop((8, 9, 10), oversampling=0.0, on="image"), WHOLE_LABEL],
            "usual": [CROP, ops.RandomFlip3d(), ops.Cast(), ops.RandomBrightness(p=0.5), ops.GaussianNoise(p=0.5)],
            "prepare": [ops.ResampleSpacing(), ops.ClipNormalize(), ops.PadTo(28), ops.RandomBalancedCrop(12)],
        }.items()
        for ending in (".nii", ".nii.gz", ".npy")
        # Arrays have no spacing.
        if name != "prepare" or ending != ".npy"
    }
)
def volume_crop(inputs: Inputs, chain: list[ops.Op], ending: str, **options: Any) -> fl.Loader:
    """Crop volumes of each format. Of uncompressed ones only a part is read."""
    return fl.Loader(fl.volumes(inputs.volumes[ending]), chain, batch_size=2, shuffle=True, seed=2, **options)


@case(
    chains(
        spacing=[ops.ResampleSpacing((1.5, 2.0, 1.0)), ops.PadTo((32, 12, 34), fill=3.5)],
        spacing_of_the_image=[
            ops.ResampleSpacing((1.5, 2.0, 1.0), on="image"),
            ops.PadTo((32, 12, 34), on="image"),
            WHOLE_LABEL,
        ],
        clip=[WHOLE, ops.ClipNormalize(-50.0, 20.0, -3.0, 11.5, on=("image",))],
        pad_edge=[ops.PadTo((24, 25, 26), mode="edge")],
        flip=[WHOLE, ops.RandomFlip3d(p=0.7)],
        flip_of_the_image=[WHOLE, ops.RandomFlip3d(on="image")],
        cast=[WHOLE, ops.Cast("float16", "int64")],
        cast_of_the_label=[WHOLE, ops.Cast(label_dtype="float32", on="label")],
        brightness=[WHOLE, ops.RandomBrightness(factor=0.5, p=0.9, on=("image",))],
        noise=[WHOLE, ops.GaussianNoise(std=2.0, p=0.9, on=("image",))],
    )
)
def volume_op(inputs: Inputs, chain: list[ops.Op], **options: Any) -> fl.Loader:
    """Apply a chain to whole volumes."""
    return fl.Loader(fl.volumes(inputs.volumes[".nii"]), chain, batch_size=2, shuffle=True, seed=2, **options)
