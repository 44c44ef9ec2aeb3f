"""The structure of samples, learned from one of them, so that arrays can live in shared memory.

In: a sample, a tree of dicts, lists, tuples and named tuples. Out: a :class:`Schema`, which names the array leaves
(see :mod:`feedline.torch.worker.leaves`) and can store further samples of the same structure. All other leaves are
objects: they travel as payload next to the arrays. The parent process puts both together again.

A sample that does not match is no error. It travels as payload as a whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import torch

from feedline.torch.worker.leaves import Array, Leaf, Mode, leaf_of, tensor_of, value_of, writer_of
from feedline.torch.worker.payload import pickled

_MOST_LEAVES = 256
"""Above this, a sample is a long list of numbers, for which a pickle is cheaper."""

_Flatten = Callable[[Any], Sequence[Any] | None]
_Node = tuple[Any, ...]
"""``(type, keys, children)`` of a container; ``("array",)`` or ``("object",)`` of a leaf. ``keys`` only for dicts."""
_ARRAY: _Node = ("array",)
_OBJECT: _Node = ("object",)


class Schema:
    """The structure of samples (mode ``"sample"``) or of collated items (mode ``"unit"``)."""

    def __init__(self, mode: Mode, tree: _Node, leaves: list[Leaf]) -> None:
        """Use :meth:`learn` or :meth:`from_blob`."""
        self.mode = mode
        self.array_leaves = leaves
        self._tree = tree
        self._flatten = _flattener(tree)
        self._writers = [writer_of(leaf) for leaf in leaves]
        found = list(_leaves(tree, dict))
        self._is_array = [node is _ARRAY for node, _ in found]
        self._arrays = [number for number, (node, _) in enumerate(found) if node is _ARRAY]
        self._objects = [number for number, (node, _) in enumerate(found) if node is _OBJECT]
        # default_collate hands the values of a sequence over as a tuple, and returns strings as they are.
        self._groups: list[Any] = [list if parent is dict else tuple for node, parent in found if node is _OBJECT]

    @staticmethod
    def learn(sample: Any, mode: Mode) -> Schema | None:
        """Return the structure of a sample, or ``None`` if it has no array leaf or too many."""
        leaves: list[Leaf] = []
        tree = _learn(sample, mode, leaves)
        return Schema(mode, tree, leaves) if 0 < len(leaves) <= _MOST_LEAVES else None

    @staticmethod
    def from_blob(blob: bytes) -> Schema:
        """Return the schema of :meth:`blob`, possibly of another process."""
        mode, tree, leaves = pickle.loads(blob)
        return Schema(mode, _canonical(tree), [Leaf(*leaf) for leaf in leaves])

    def blob(self) -> bytes:
        """Return the schema as bytes."""
        # Named tuples of a main script may need cloudpickle, which this function falls back to.
        stream, _ = pickled((self.mode, self._tree, [tuple(leaf) for leaf in self.array_leaves]))
        return stream

    @property
    def leaves(self) -> list[tuple[int, tuple[int, ...]]]:
        """The dtype code of each array leaf, and the shape of its memory."""
        return [(leaf.code, leaf.memory_shape) for leaf in self.array_leaves]

    @property
    def has_objects(self) -> bool:
        """Whether samples have leaves that travel as payload."""
        return bool(self._objects)

    def store(self, sample: Any, views: Sequence[Array], slot: int) -> tuple[bool, list[Any] | None]:
        """Write the array leaves of a sample into a slot of the views. Also returns the values of its object leaves.

        Returns ``(False, None)`` if the sample does not match; the slot's content is then undefined.
        """
        values = self._flatten(sample)
        if values is None:
            return False, None
        rest = []
        if self._objects:
            rest = [values[number] for number in self._objects]
            values = [values[number] for number in self._arrays]
        # The flattened sample has as many values as the schema has leaves, so no length is checked here.
        for write, value, view in zip(self._writers, values, views):  # noqa: B905
            if not write(value, view, slot):
                return False, None
        return True, rest

    def assemble_batch(self, arrays: Sequence[Array], rests: Sequence[list[Any]] | None) -> Any:
        """Return what ``default_collate`` makes of the samples. The tensors share the memory of the arrays.

        ``arrays[l]`` is ``[samples, *shape]``; ``rests`` has the object leaves of each sample, if there are any.
        """
        tensors = (tensor_of(leaf, array) for leaf, array in zip(self.array_leaves, arrays, strict=True))
        objects = (
            torch.utils.data.default_collate(group(rest[number] for rest in rests or ()))
            for number, group in enumerate(self._groups)
        )
        return _rebuild(self._tree, self._merged(tensors, objects), tuple_as=list)

    def assemble_item(self, arrays: Sequence[Array], rest: list[Any] | None) -> Any:
        """Return the item of slot 0 as it was stored. Its arrays and tensors share the memory of ``arrays``."""
        return self.sample_at(arrays, 0, rest)

    def sample_at(self, arrays: Sequence[Array], slot: int, rest: list[Any] | None) -> Any:
        """Return the sample of a slot as it was stored, for batches in which other samples do not match."""
        values = (value_of(leaf, array[slot, ...]) for leaf, array in zip(self.array_leaves, arrays, strict=True))
        return _rebuild(self._tree, self._merged(values, iter(rest or ())), tuple_as=tuple)

    def _merged(self, arrays: Iterator[Any], objects: Iterator[Any]) -> Iterator[Any]:
        """Give all leaves in the order of the tree."""
        return (next(arrays) if is_array else next(objects) for is_array in self._is_array)


def _learn(value: Any, mode: Mode, leaves: list[Leaf]) -> _Node:
    kind = type(value)
    if kind is dict:
        return (dict, tuple(value), tuple(_learn(child, mode, leaves) for child in value.values()))
    if kind is list or kind is tuple or _is_named(value):
        return (kind, None, tuple(_learn(child, mode, leaves) for child in value))
    leaf = leaf_of(value, mode)
    if leaf is None:
        return _OBJECT
    leaves.append(leaf)
    return _ARRAY


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _canonical(node: _Node) -> _Node:
    """Replace the leaves of an unpickled tree by the constants of this module."""
    if len(node) == 1:
        return _ARRAY if node == _ARRAY else _OBJECT
    kind, keys, children = node
    return (kind, keys, tuple(map(_canonical, children)))


def _leaves(node: _Node, parent: Any) -> Iterator[tuple[_Node, Any]]:
    """Give all leaves with the types of their containers."""
    if len(node) == 1:
        yield node, parent
        return
    for child in node[2]:
        yield from _leaves(child, node[0])


def _rebuild(node: _Node, leaves: Iterator[Any], tuple_as: Callable[[Iterator[Any]], Any]) -> Any:
    if len(node) == 1:
        return next(leaves)
    kind, keys, nodes = node
    children = [_rebuild(child, leaves, tuple_as) for child in nodes]
    if kind is dict:
        return dict(zip(keys, children, strict=True))
    if kind is list:
        return children
    return tuple_as(iter(children)) if kind is tuple else kind(*children)


def _flattener(node: _Node) -> _Flatten:
    """Return a function that gives the leaves of a sample in order, or ``None`` if its structure differs."""
    if len(node) == 1:
        return lambda sample: (sample,)
    kind, keys, children = node
    shallow = _dict_values(keys) if kind is dict else _sequence_values(kind, len(children))
    if all(len(child) == 1 for child in children):
        return shallow
    deeper = [None if len(child) == 1 else _flattener(child) for child in children]

    def flatten(sample: Any) -> Sequence[Any] | None:
        parts = shallow(sample)
        if parts is None:
            return None
        leaves: list[Any] = []
        for inner, part in zip(deeper, parts, strict=True):
            if inner is None:
                leaves.append(part)
                continue
            found = inner(part)
            if found is None:
                return None
            leaves.extend(found)
        return leaves

    return flatten


def _sequence_values(kind: Any, length: int) -> _Flatten:
    def values(sample: Any) -> Any:
        return sample if type(sample) is kind and len(sample) == length else None

    return values


def _dict_values(keys: tuple[Any, ...]) -> _Flatten:
    if len(keys) > 1:
        get: Callable[[Any], Any] = itemgetter(*keys)
    else:  # itemgetter would not return a tuple.
        get = lambda sample: tuple(sample[key] for key in keys)  # noqa: E731
    length = len(keys)

    def values(sample: Any) -> Sequence[Any] | None:
        if type(sample) is not dict or len(sample) != length:
            return None
        try:
            found: Sequence[Any] = get(sample)
        except KeyError:
            return None
        return found

    return values
