"""A hash of what a function does: jobs share its results, and caches keep them, only while the hash is the same.

In: a function or another callable. Out: a hash of its code, its defaults and closure, the global values that it names,
the functions and classes among them, and the files of the modules that it names.

What it cannot see: files and variables of the environment that the function reads, modules that it imports by a name
that it computes, and modules behind the modules that it names. ``ops.Map(version=...)`` is for these.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

_Visit = Callable[[Any], None]
_NOT_CODE = (
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def code_hash(function: Callable[..., Any]) -> str:
    """Return 32 hexadecimal digits. Equal functions in other processes have equal hashes.

    >>> from feedline.worker.code_hash import code_hash
    >>> code_hash(lambda image: image + 1) == code_hash(lambda image: image + 2)
    False
    """
    visitor = _Visitor()
    visitor.visit(function)
    return visitor.digest.hexdigest()


_INSTALLED = tuple(
    os.path.realpath(folder) + os.sep
    for folder in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class _Visitor:
    """Walks what a function refers to, in an order that depends on nothing but its code."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        # The numbers of objects, by identity. Objects are kept, so that no other one gets the same identity.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._modules: set[str | None] = set()

    def visit(self, value: Any) -> None:
        """Add a value and what it refers to."""
        if type(value) in _PLAIN:
            return self._add(f"{type(value).__name__} {value!r}")
        if id(value) in self._seen:
            return self._add(f"seen {self._seen[id(value)][0]}")
        self._seen[id(value)] = (len(self._seen), value)
        return self._visit_new(value)

    def _visit_new(self, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, types.ModuleType):
            self._visit_module(value.__name__)
        elif isinstance(value, types.MethodType):
            self._visit_all("method", value.__func__, value.__self__)
        elif isinstance(value, types.CodeType):
            self._visit_code(value)
        elif isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self._visit_all("method", value.__func__)
        elif isinstance(value, property):
            self._visit_all("property", value.fget, value.fset, value.fdel)
        elif isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
            # Such as a function behind functools.lru_cache, which is pickled by its name.
            self._visit_all(f"wrapped by {type(value).__qualname__}", value.__wrapped__)
        elif isinstance(value, functools.partial):
            self._visit_all("partial", value.func, value.args, value.keywords)
        elif isinstance(value, (tuple, list)):
            self._visit_all(f"{type(value).__name__} {len(value)}", *value)
        elif isinstance(value, (set, frozenset)):
            self._visit_all("set", *sorted(value, key=repr))
        elif isinstance(value, dict):
            self._visit_all(f"dict {len(value)}", *(part for entry in value.items() for part in entry))
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType)):
            self._add(f"builtin {getattr(value, '__module__', None)} {value.__qualname__}")
            self._visit_module(getattr(value, "__module__", None))
        else:
            self._visit_object(value)

    def _visit_function(self, function: types.FunctionType) -> None:
        self._visit_all("function", function.__code__, function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:  # The variable has no value yet.
                self._add("empty")
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                self._visit_all(f"global {name}", function.__globals__[name])
            elif name in sys.modules:
                # An import inside of the function.
                self._visit_module(name)
        self._visit_module(function.__module__)

    def _visit_code(self, code: types.CodeType) -> None:
        self._add(f"code {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_argcount}")
        self._visit_all("constants", *code.co_consts)

    def _visit_class(self, kind: type) -> None:
        self._add(f"class {kind.__module__} {kind.__qualname__}")
        module = sys.modules.get(kind.__module__)
        if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__ or not _is_installed(module):
            members = {name: member for name, member in vars(kind).items() if name not in _NOT_CODE}
            self._visit_all("members", *kind.__bases__, *(part for entry in sorted(members.items()) for part in entry))
        self._visit_module(kind.__module__)

    def _visit_object(self, value: Any) -> None:
        """Add the pickle of an object, and the code of the functions and classes in it."""
        bytes_of = io.BytesIO()
        pickler = _CodePickler(bytes_of, self._add_bytes)
        try:
            pickler.dump(value)
            self._add_bytes(bytes_of.getbuffer())
        except Exception:
            # A part of it cannot be pickled, such as a lock. Such a part is like no object of another process.
            state = getattr(value, "__dict__", None)
            if state is None:
                self._add(f"unlike others {os.getpid()} {id(value)}")
            else:
                self._visit_all("state", *(part for entry in state.items() for part in entry))
        self._visit_all("code", type(value), *pickler.code)

    def _visit_module(self, name: str | None) -> None:
        """Add the file of a module. The main script is not one: it differs between programs that share a function."""
        module = sys.modules.get(name or "")
        path = getattr(module, "__file__", None)
        if module is None or name == "__main__" or not isinstance(path, str) or name in self._modules:
            return
        self._modules.add(name)
        # Not by getattr: some modules make attributes of any name.
        version = vars(module).get("__version__")
        self._add(f"module {name} {version} {_file_hash(path, _stamp(path))}")

    def _visit_all(self, what: str, *values: Any) -> None:
        self._add(what)
        for value in values:
            self.visit(value)

    def _add(self, text: str) -> None:
        # Its length is added, too, so that no two sequences of texts give the same bytes.
        self._add_bytes(text.encode(errors="surrogatepass"))

    def _add_bytes(self, content: Any) -> None:
        self.digest.update(len(content).to_bytes(8, "little"))
        self.digest.update(content)


class _CodePickler(pickle.Pickler):
    """Pickles an object without its code, which it collects."""

    def __init__(self, file: io.BytesIO, add_bytes: Callable[[Any], None]) -> None:
        # Arrays are hashed where they are, not copied into the pickle.
        super().__init__(file, protocol=5, buffer_callback=lambda buffer: add_bytes(buffer.raw()))
        self.code: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        """Called for everything but numbers, texts and containers of these."""
        if isinstance(value, (type, types.FunctionType, types.ModuleType, types.CodeType)):
            self.code.append(value)
            # The pickle is never loaded. A class in place of the function would come here again.
            return repr, (getattr(value, "__name__", "code"),)
        self.code.append(type(value))
        return NotImplemented


def _global_names(code: types.CodeType) -> list[str]:
    """Return the names that a function and the functions in it look up, without repeats."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_global_names(constant))
    return list(names)


def _is_installed(module: Any) -> bool:
    """Return whether a module belongs to the interpreter or to an installed package. Their versions tell them apart."""
    path = getattr(module, "__file__", None)
    if not isinstance(path, str):
        return module is not None
    return any(os.path.realpath(path).startswith(folder) for folder in _INSTALLED)


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _file_hash(path: str, stamp: tuple[int, int]) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except OSError:
        return str(stamp)
