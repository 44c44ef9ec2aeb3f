"""Sources: where samples come from."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from feedline import _feedline, environment
from feedline.display import Displayed, Facts, count, listed
from feedline.errors import PlanError, SourceError
from feedline.paths import AnyPath, is_path, path_text
from feedline.sampler import whole_numbers

Labels = Sequence[Any] | npt.NDArray[Any]


class Source(Displayed):
    """A numbered set of samples; made by :func:`folder`, :func:`tar`, :func:`files`, :func:`array` and others.

    >>> fl.synthetic(10, (2,))
    <feedline.Source synthetic: 10 samples, fields data>
    """

    def __init__(self, native: _feedline.Source) -> None:
        """Hold an opened source. Users call the functions of this module."""
        self._native = native

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._native)

    def __repr__(self) -> str:
        """Show kind, path and size in one line."""
        classes = f", {count(len(self.classes), 'class')}" if self.classes else ""
        left_out = f", {count(self.skipped, 'file')} left out" if self.skipped else ""
        samples = f"{count(len(self), 'sample')}{classes}, fields {listed(self.fields)}{left_out}"
        return f"<feedline.Source {self._native.describe()}: {samples}>"

    def _facts(self) -> Facts:
        facts: Facts = {"kind": self._native.describe(), "samples": f"{len(self):,}", "fields": listed(self.fields)}
        if self.classes:
            facts["classes"] = f"{len(self.classes):,}: {listed(self.classes)}"
        if self.skipped:
            facts["files left out"] = f"{self.skipped:,}"
        return facts

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments. The unpickling process lists the samples itself, and checks that they are the same."""
        return _opened_again, (self._native.spec(), self._native.identity)

    def __deepcopy__(self, memo: dict[int, Any]) -> Source:
        """Return the source itself, because it never changes."""
        return self

    @property
    def classes(self) -> list[str]:
        """The names of the classes: ``classes[label]``. Empty if the source has none.

        >>> fl.array(np.zeros((2, 3)), labels=["dog", "cat"]).classes
        ['cat', 'dog']
        """
        return self._native.classes

    @property
    def skipped(self) -> int:
        """The number of files that were left out because of their extension.

        >>> fl.synthetic(10, (2,)).skipped
        0
        """
        return self._native.skipped

    @property
    def fields(self) -> list[str]:
        """The names of the samples' fields.

        >>> fl.array(np.zeros((2, 3)), labels=[0, 1]).fields
        ['data', 'label']
        """
        return self._native.fields

    @property
    def indices(self) -> list[int]:
        """The indices of the samples, in the source's order. A subset keeps the indices of its parent.

        >>> fl.synthetic(10, (2,)).subset([7, 3]).indices
        [3, 7]
        """
        return self._native.indices()

    def key(self, index: int) -> str:
        """Return the name of a sample.

        >>> fl.synthetic(10, (2,)).key(3)
        'synthetic-00000003'
        """
        key = self._native.key(index)
        if key is None:
            raise IndexError(f"there is no sample {index} in {self!r}")
        return key

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Source:
        """Return a source with only these samples. They keep their indices and come in ascending order.

        >>> len(fl.synthetic(10, (2,)).subset([7, 3]))
        2
        """
        try:
            numbers = whole_numbers("subset()", indices)
        except PlanError as error:
            raise SourceError(str(error)) from None
        return Source(self._native.subset(numbers))

    @property
    def keys(self) -> list[str]:
        """The names of the samples, in the source's order.

        >>> fl.synthetic(2, (4,)).keys
        ['synthetic-00000000', 'synthetic-00000001']
        """
        return self._native.keys()

    @property
    def labels(self) -> npt.NDArray[Any] | list[npt.NDArray[Any]] | None:
        """The labels of the samples, in the source's order. ``None`` if the source has none.

        An array with one entry per sample, or a list of arrays if the shapes of the labels differ.
        Also ``None`` if the labels are arrays in files, such as those of :func:`volumes`.

        >>> fl.array(np.zeros((3, 2)), labels=["dog", "cat", "dog"]).labels
        array([1, 0, 1])
        """
        labels = self._native.labels()
        if isinstance(labels, list):
            return [np.asarray(label) for label in labels]
        return None if labels is None else np.asarray(labels)

    def split(
        self, parts: Mapping[str, float], seed: int = 0, *, by: Literal["label"] | None = None
    ) -> dict[str, Source]:
        """Divide the samples at random into parts of given fractions. Samples keep their indices.

        Args:
            parts: fractions by name, which add up to at most 1.
            seed: the same seed gives the same parts.
            by: ``"label"`` divides each class on its own. Every part then has its fraction of every class, rounded up
                or down.

        >>> parts = fl.synthetic(10, (2,)).split({"train": 0.8, "val": 0.2})
        >>> len(parts["train"]), len(parts["val"])
        (8, 2)
        """
        by_label = _is_by_label("split()", seed, by)
        if not isinstance(parts, Mapping):
            raise SourceError('split() takes fractions by name, {"train": 0.9, "val": 0.1}')
        # Fractions such as 0.1 are not exact in binary, so sums are compared with a tolerance.
        total = sum(parts.values())
        if not parts or min(parts.values()) <= 0 or total > 1 + 1e-9:
            raise SourceError(f"split() takes fractions above 0 that add up to at most 1, not {dict(parts)}")
        sources: dict[str, Source] = {}
        start = 0.0
        for name, fraction in parts.items():
            end = min(start + fraction, 1.0)
            # Parts that add up to 1 must reach exactly to the end, or a sample would be lost to rounding.
            end = 1.0 if abs(end - 1.0) < 1e-9 else end
            sources[name] = Source(self._native.share(seed, start, end, by_label))
            start = end
        return sources

    def kfold(self, k: int, seed: int = 0, *, by: Literal["label"] | None = None) -> list[tuple[Source, Source]]:
        """Return ``k`` pairs ``(train, val)`` for cross-validation. Each sample is in exactly one ``val``.

        Args:
            k: the number of folds, from 2 to the number of samples.
            seed: the same seed gives the same folds.
            by: ``"label"`` gives every fold the same mix of classes.

        >>> [(len(train), len(val)) for train, val in fl.synthetic(10, (2,)).kfold(5)]
        [(8, 2), (8, 2), (8, 2), (8, 2), (8, 2)]
        """
        by_label = _is_by_label("kfold()", seed, by)
        if not isinstance(k, (int, np.integer)) or not 2 <= k <= len(self):
            raise SourceError(
                f"kfold(): k is {k!r}; it must be a whole number from 2 to {len(self)}, the number of samples"
            )
        # The validation samples of a fold are the share from `start` to `end`. A share that ends before it starts wraps
        # around, so the share from `end` to `start` has all other samples. `% 1.0` and `or 1.0` turn a start of 1 into
        # 0 and an end of 0 into 1.
        ends = [(fold / k, (fold + 1) / k) for fold in range(k)]
        return [
            (
                Source(self._native.share(seed, end % 1.0, start or 1.0, by_label)),
                Source(self._native.share(seed, start, end, by_label)),
            )
            for start, end in ends
        ]


def _is_by_label(of: str, seed: int, by: str | None) -> bool:
    if by not in (None, "label"):
        raise SourceError(f'{of}: by is {by!r}; it must be "label" or None')
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise SourceError(f"{of}: seed is {seed!r}; it must be a whole number, at least 0")
    return by is not None


def folder(
    root: AnyPath,
    *,
    classes: Sequence[str] | None = None,
    extensions: Sequence[str] | None = None,
    allow_empty: bool = False,
) -> Source:
    """Open a folder of pictures. Each sub-folder is a class, in sorted order. A flat folder has label -1.

    Fields: ``image`` (encoded; add ``ops.DecodeImage()``) and ``label`` (int64). Pictures are JPEG, PNG, WebP,
    TIFF, BMP, GIF, PPM, PGM and PNM; ``extensions=(".jpg", ".png")`` takes only files with these endings. Other files
    are left out, counted in ``source.skipped`` and named in a warning. Names that begin with a dot are ignored.

    ``classes`` fixes the names and their labels: ``folder("val", classes=train.classes)``. A sub-folder that is not
    among them is an error. So is a sub-folder without pictures, unless ``allow_empty`` is set, because it would be a
    class without samples. The listing is fixed for the life of the source; see :meth:`feedline.Loader.reopen`.

    >>> train = fl.folder("data/train")
    >>> val = fl.folder("data/val", classes=train.classes)
    """
    params: dict[str, Any] = {"kind": "folder", "root": path_text(root)}
    for name, value in (("classes", classes), ("extensions", extensions)):
        if value is None:
            continue
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            raise SourceError(f"folder() takes a list of names as {name}, not {reprlib.repr(value)}")
        params[name] = list(value)
    if allow_empty:
        params["allow_empty"] = True
    return _open(params)


def tar(shards: AnyPath | Sequence[AnyPath]) -> Source:
    """Open tar shards in the format of WebDataset: ``tar("train/*.tar")``, a folder, a path, or a list of these.

    They may be remote: ``tar("s3://bucket/train/*.tar")``, ``gs://``, ``az://``, ``http://`` or ``https://``.

    Consecutive members with the same key form a sample. ``jpg``, ``jpeg``, ``png``, ``webp``, ``tif``, ``tiff``,
    ``bmp``, ``gif``, ``ppm``, ``pgm`` and ``pnm`` are the field ``image`` (encoded; add ``ops.DecodeImage()``),
    ``mask.png`` is ``mask``, ``cls`` is ``label`` (int64) if all are whole numbers. All other fields are named by their
    extension. Fields that some samples lack are left out, with a warning.

    Shards that ``feedline pack`` wrote have an index; others are listed once, and the index is kept in the cache folder
    (``FEEDLINE_CACHE``). Samples are numbered in the order of the shards' paths, then by their position in the shard.

    >>> source = fl.tar("shards/*.tar")
    """
    many: Any = [shards] if is_path(shards) else shards
    if not isinstance(many, Sequence) or not all(is_path(shard) for shard in many):
        raise SourceError(f"tar() takes a pattern, a path or a folder, or a list of them, not {reprlib.repr(shards)}")
    return _open({"kind": "tar", "shards": [path_text(shard) for shard in many]})


def files(fields: Mapping[str, Sequence[AnyPath]], labels: Labels | None = None) -> Source:
    """Use lists of files, one list per field: ``files({"image": [...], "mask": [...]}, labels=[...])``.

    All lists have the same length. ``labels`` has one entry per sample: numbers or bool of any dtype and shape, or the
    names of classes. Names become int64 labels in the sorted order of the names, which ``source.classes`` lists. If the
    shapes of the labels differ, such as the boxes of a picture, give the loader ``ragged=("label",)``.

    >>> fl.files({"image": ["a.jpg", "b.jpg"]}, labels=["dog", "cat"]).classes
    ['cat', 'dog']
    """
    if not isinstance(fields, Mapping):
        raise SourceError('files() takes lists of paths by field name: {"image": ["a.jpg", "b.jpg"]}')
    for name, paths in fields.items():
        if is_path(paths):
            raise SourceError(f"files(): {name!r} is {paths!r}; it must be a list of paths")
    lists = [(name, [path_text(path) for path in paths]) for name, paths in fields.items()]
    return Source(_feedline.Source.files(lists, _label_parts(labels)))


def array(data: npt.NDArray[Any] | AnyPath, labels: Labels | None = None, *, field: str | None = None) -> Source:
    """Use an array, or a ``.npy`` file, whose first axis counts the samples.

    An array in memory is not copied: do not change it while a loader reads it.

    Args:
        data: the array, or the path of the file.
        labels: see :func:`files`.
        field: the name of the field. By default ``"image"`` for uint8 of shape (n, height, width, 1 or 3), so that
            image ops apply, and ``"data"`` for everything else.

    >>> fl.array(np.zeros((10, 32, 32, 3), np.uint8)).fields
    ['image']
    >>> fl.array(np.zeros((10, 7)), field="signal").fields
    ['signal']
    """
    if isinstance(data, (str, bytes, os.PathLike)):
        return Source(_feedline.Source.array_file(path_text(data), field, _label_parts(labels)))
    plain = _plain_array("array()", data)
    # The engine reads the array's memory in place. It keeps `plain` alive.
    address: int = plain.__array_interface__["data"][0]
    shape, parts = list(np.shape(data)), _label_parts(labels)
    return Source(_feedline.Source.array_memory(plain, address, plain.dtype.name, shape, field, parts))


def volumes(
    root: AnyPath | Sequence[AnyPath | tuple[AnyPath, ...]],
) -> Source:
    """Use 3D volumes, ``.nii``, ``.nii.gz`` or ``.npy``: a folder, or a list of images or of ``(image, label)``.

    In a folder, names pair images with labels: ``case_7/imaging`` and ``case_7/segmentation`` (KiTS19), ``case_7_x``
    and ``case_7_y`` (MLPerf's prepared data), or the same with ``image`` and ``label``. Without such names all files
    are images.

    Fields: ``image`` (float32) and, if there are labels, ``label`` (uint8), each of shape (channels, depth, height,
    width). Axes are those of nibabel and NumPy: the file's first axis is the depth. Three axes are one channel.

    >>> source = fl.volumes("kits19/data")
    """
    if isinstance(root, (str, bytes, os.PathLike)):
        return _open({"kind": "volumes", "root": path_text(root)})
    entries = [(entry,) if isinstance(entry, (str, bytes, os.PathLike)) else tuple(entry) for entry in root]
    lengths = {len(entry) for entry in entries}
    if len(lengths) > 1 or not lengths <= {1, 2}:
        raise SourceError("volumes() takes a folder, or a list of images, or a list of (image, label)")
    params: dict[str, Any] = {"kind": "volumes", "images": [path_text(entry[0]) for entry in entries]}
    if 2 in lengths:
        params["labels"] = [path_text(entry[1]) for entry in entries]
    return _open(params)


def synthetic(n: int, shape: int | Sequence[int]) -> Source:
    """Generate ``n`` samples of random bytes from their indices, without I/O. The field is ``data``, uint8.

    >>> len(fl.synthetic(1000, (224, 224, 3)))
    1000
    """
    shape = (shape,) if isinstance(shape, int) else shape
    if not all(isinstance(number, (int, np.integer)) and number > 0 for number in (n, *shape)):
        raise SourceError(f"synthetic({n}, {tuple(shape)}): n and all sides must be whole numbers above 0")
    return Source(_feedline.Source.synthetic(int(n), [int(side) for side in shape]))


def _open(params: dict[str, Any]) -> Source:
    return Source(_feedline.Source.open(params, environment.cache_folder()))


def _opened_again(spec: dict[str, Any], identity: int) -> Source:
    source = _open(spec)
    # Otherwise a run that resumes over other files would silently deliver other samples.
    if source._native.identity != identity:
        raise SourceError(
            "the source lists other samples than when it was pickled: files were added, removed or renamed, or this "
            "process sees another folder at the same path"
        )
    return source


def _label_parts(
    labels: Labels | None,
) -> tuple[str, list[int], bytes] | tuple[str, list[list[int]], bytes] | list[str] | None:
    """Return labels as the engine takes them.

    Names of classes, or the dtype, the shape of every label or the list of all shapes, and the bytes of all labels.
    """
    if labels is None:
        return None
    if len(labels) > 0 and all(isinstance(label, str) for label in labels):
        return [str(label) for label in labels]
    arrays = _ragged_arrays(labels)
    if arrays is not None:
        return arrays[0].dtype.name, [list(array.shape) for array in arrays], b"".join(map(np.ndarray.tobytes, arrays))
    values = _plain_array("labels", labels)
    return values.dtype.name, list(values.shape[1:]), values.tobytes()


def _ragged_arrays(labels: Labels) -> list[npt.NDArray[Any]] | None:
    """Return one array per label with a common dtype if their shapes differ; ``None`` if all shapes are the same."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
        return None
    try:
        arrays = [np.asarray(label) for label in labels]
    except ValueError as error:
        raise SourceError(f"labels: {error}") from error
    filled = [array for array in arrays if array.size > 0]
    if len({array.shape for array in arrays}) < 2 or not filled or min(array.ndim for array in arrays) == 0:
        return None
    # An empty list has neither the dtype nor the sides of the others. So [] among boxes of shape (k, 4) becomes (0, 4).
    dtype = np.result_type(*filled)
    rest = filled[0].shape[1:]
    arrays = [array if array.ndim > len(rest) else np.zeros((0, *rest), dtype) for array in arrays]
    return [_plain_array("labels", array.astype(dtype, copy=False)) for array in arrays]


def _plain_array(what: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of numbers in C order and native byte order. Copies only if necessary."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise SourceError(f"{what}: {error}") from error
    # bool, signed, unsigned, float. The engine has no text, objects or complex numbers.
    if array.dtype.kind not in "biuf":
        raise SourceError(f"{what} has elements of {array.dtype}; they have to be numbers, all of one shape")
    # The engine reads elements one after the other, in the machine's byte order.
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
