"""Translates torchvision transforms into ops: ``feedline.torch.native_ops``.

In: a transform, such as a ``Compose``. Out: :class:`NativeOps`, the ops and a report of what each transform became.
``transform_rules`` decides about single transforms; here they are put in order. Feedline moves pixels before it
converts them to floats, so a flip after ``ToTensor`` moves before it, which gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from feedline import ops
from feedline.errors import FeedlineError
from feedline.loader import Loader
from feedline.ops import Op
from feedline.source import files
from feedline.torch.native.exact_types import is_exactly, replaced_method
from feedline.torch.native.python_transform import PythonTransform
from feedline.torch.native.transform_parameters import NotNativeError
from feedline.torch.native.transform_rules import MODULES, Form, step_for, version_of

Output = Literal["PIL picture", "uint8 tensor", "float32 tensor", "unknown"]

KEEP_THE_KIND = frozenset(
    {
        "AugMix", "AutoAugment", "CenterCrop", "ColorJitter", "ElasticTransform", "GaussianBlur", "Pad", "RandAugment",
        "RandomAdjustSharpness", "RandomAffine", "RandomAutocontrast", "RandomCrop", "RandomEqualize", "RandomErasing",
        "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomPerspective", "RandomPosterize",
        "RandomResizedCrop", "RandomRotation", "RandomSolarize", "RandomVerticalFlip", "Resize", "TrivialAugmentWide",
    }
)  # fmt: skip
"""Transforms that return a picture of the kind and the channels that they receive. Ops can follow them."""


class ReportRow(NamedTuple):
    """What became of one transform.

    Attributes:
        transform: the transform, as text.
        op: the op, ``"none needed"`` if the transform changes nothing, or ``"Python function"``.
        reason: why the transform is not native; empty if it is.
    """

    transform: str
    op: str
    reason: str = ""


@dataclass(frozen=True, repr=False)
class NativeOps:
    """Ops that do what a torchvision transform does; made by :func:`native_ops`.

    Attributes:
        ops: the ops, for decoded pictures: a loader of files needs ``ops.DecodeImage(exif=False)`` before them.
        report: one row for each transform.
        output: what the last transform returns.
    """

    ops: list[Op]
    report: list[ReportRow]
    output: Output

    @property
    def is_native(self) -> bool:
        """Whether no transform runs as a Python function."""
        return not any(row.reason for row in self.report)

    def __repr__(self) -> str:
        """Show the report as a table."""
        rows = [ReportRow("transform", "op", "why not native"), *self.report]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def native_ops(transform: Callable[[Any], Any]) -> NativeOps:
    """Translate a torchvision transform (v1 or v2, single or ``Compose``) into ops.

    A transform without an equal op becomes ``ops.Map``, which calls it on the engine's threads. The report says why.

    >>> from torchvision import transforms as T
    >>> native = native_ops(T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()]))
    >>> native.ops
    [Resize(size=256, ...), CenterCrop(size=(224, 224), ...), ToTensor(...)]
    >>> native.is_native
    True
    """
    chain = _Chain()
    transforms = _flattened(transform)
    for number, single in enumerate(transforms):
        try:
            chain.add(single)
        except NotNativeError as error:
            if version_of(single) and type(single).__name__ in KEEP_THE_KIND and chain.form.kind != "float32":
                chain.add_function(single, str(error))
            else:
                return chain.ended_by(transforms[number:], str(error))
    return chain.ended()


def short_text(transform: object) -> str:
    """Return a transform as text of one line, shortened to 60 characters."""
    text = " ".join(repr(transform).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Chain:
    """Collects ops. Ops of pixels come before the conversion to floats, ops of float tensors after it."""

    def __init__(self) -> None:
        self.form = Form()
        self._pixel_ops: list[Op] = []
        self._tensor_ops: list[Op] = []
        self._report: list[ReportRow] = []
        self._row_to_uint8 = 0

    def add(self, transform: Any) -> None:
        op, form = step_for(transform, self.form)
        if op is not None:
            is_of_tensors = form.kind == "float32" and isinstance(op, (ops.ToTensor, ops.Normalize, ops.RandomErasing))
            collected = self._tensor_ops if is_of_tensors else self._pixel_ops
            collected.append(op)
            refusal = _refusal_of_engine(tuple(self._ops()))
            if refusal is not None:
                collected.pop()
                raise NotNativeError(refusal)
        if (self.form.kind, form.kind) == ("PIL", "uint8"):
            self._row_to_uint8 = len(self._report)
        self.form = form
        self._report.append(ReportRow(short_text(transform), "none needed" if op is None else _op_text(op)))

    def add_function(self, transform: Any, reason: str) -> None:
        """Add a transform that returns the kind of picture that it receives, as a Python function."""
        self._pixel_ops.append(ops.Map(PythonTransform((transform,), self.form.kind, keeps_kind=True)))
        self._report.append(ReportRow(short_text(transform), "Python function", reason))

    def ended(self) -> NativeOps:
        chain = self._ops()
        if self.form.kind == "PIL":
            return NativeOps(chain, self._report, "PIL picture")
        if self.form.kind == "float32":
            return NativeOps(chain, self._report, "float32 tensor")
        op = ops.ToTensor(dtype="uint8")
        report = list(self._report)
        report[self._row_to_uint8] = report[self._row_to_uint8]._replace(op=_op_text(op))
        return NativeOps([*chain, op], report, "uint8 tensor")

    def ended_by(self, transforms: list[Any], reason: str) -> NativeOps:
        """Run all remaining transforms as one Python function, because nobody knows what the first of them returns."""
        first = short_text(transforms[0])
        reasons = [reason] + [f"it follows {first}, which may return anything"] * (len(transforms) - 1)
        for transform, why in zip(transforms, reasons, strict=True):
            self._report.append(ReportRow(short_text(transform), "Python function", why))
        function = PythonTransform(tuple(transforms), self.form.kind, keeps_kind=False)
        return NativeOps([*self._ops(), ops.Map(function)], self._report, "unknown")

    def _ops(self) -> list[Op]:
        # Normalize converts pixels itself, in one pass.
        is_pair = len(self._tensor_ops) > 1 and isinstance(self._tensor_ops[1], ops.Normalize)
        return [*self._pixel_ops, *(self._tensor_ops[1:] if is_pair else self._tensor_ops)]


def _flattened(transform: Any) -> list[Any]:
    """Return the transforms inside of ``Compose`` and ``nn.Sequential``, which are not changed by the user."""
    is_compose = any(is_exactly(transform, module, "Compose") for module in MODULES.values())
    is_sequential = is_exactly(transform, "torch.nn", "Sequential")
    if not (is_compose or is_sequential) or replaced_method(transform) is not None:
        return [transform]
    parts = transform.transforms if is_compose else transform
    return [single for part in parts for single in _flattened(part)]


# A dataset is translated again at each epoch, to notice changed transforms.
@lru_cache(maxsize=256)
def _refusal_of_engine(chain: tuple[Op, ...]) -> str | None:
    """Return why the engine refuses the ops, if it does. Nothing is read: a plan is checked when its loader is made."""
    decode = ops.DecodeImage(exif=False)
    try:
        Loader(files({"image": ["picture.jpg"]}), [decode, *chain], batch_size=1, rank=0, world_size=1).close()
    except FeedlineError as error:
        return str(error)
    return None


def _op_text(op: Op) -> str:
    """Return an op as users would write it, without defaults."""
    given = [(field.name, getattr(op, field.name)) for field in fields(op) if getattr(op, field.name) != field.default]  # type: ignore[arg-type]
    return f"{type(op).__name__}({', '.join(f'{name}={value!r}' for name, value in given)})"
