"""Crates and modules depend downwards only, and ARCHITECTURE.md names existing files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir())

LAYERS = {
    "feedline-order": set(),
    "feedline-memory": set(),
    "feedline-codec": set(),
    "feedline-data": {"feedline-order", "feedline-memory", "feedline-codec"},
}
"""The allowed dependencies of the lowest crates. Others may use all of these, and those before them in ``UPPER``."""
UPPER = ["feedline-engine", "feedline-diagnose", "feedline-net", "feedline-cli", "feedline-py"]


def without_tests(text: str) -> str:
    """Remove comments and unit tests, which may depend upwards."""
    text = re.split(r"#\[cfg\(test\)\]\nmod tests \{", text)[0]
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def first_names(tree: str) -> Iterator[str]:
    """Give the first name of each path in the braces of ``crate::{...}``."""
    depth, name = 0, ""
    for char in tree:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            break
        if char == "," and depth == 0:
            yield name.strip().split("::")[0]
            name = ""
        else:
            name += char
    yield name.strip().split("::")[0]


def used_modules(text: str) -> set[str]:
    """Give the top-level names that a file uses of its own crate."""
    plain = set(re.findall(r"\bcrate::(\w+)", text))
    trees = (text[found.end() :] for found in re.finditer(r"\bcrate::\{", text))
    return plain | {name for tree in trees for name in first_names(tree)}


def module_graph(source: Path) -> dict[str, dict[str, str]]:
    """Give for each top-level module which others it uses, with a file that does."""
    test_files = {
        path.parent / f"{name}.rs"
        for path in source.rglob("*.rs")
        for name in re.findall(r"#\[cfg\(test\)\]\n(?:pub(?:\(\w+\))? )?mod (\w+);", path.read_text())
    }
    files = [path for path in source.rglob("*.rs") if path not in test_files and "tests.rs" not in path.name]
    top = {path: path.relative_to(source).parts[0].removesuffix(".rs") for path in files}
    graph: dict[str, dict[str, str]] = defaultdict(dict)
    for path, module in top.items():
        if module in ("lib", "main"):
            continue
        for used in used_modules(without_tests(path.read_text())) & set(top.values()) - {module}:
            graph[module][used] = str(path.relative_to(source))
    return graph


def cycle_in(graph: dict[str, dict[str, str]]) -> list[str]:
    """Give the first cycle, module by module; empty if there is none."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for used in sorted(graph.get(module, {})):
            if found := walk(used, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := walk(module, []))), [])


@pytest.mark.parametrize("crate", CRATES)
def test_no_modules_of_a_crate_depend_on_each_other_in_a_circle(crate: str) -> None:
    graph = module_graph(ROOT / "crates" / crate / "src")
    cycle = cycle_in(graph)
    steps = [f"{a} uses {b} in {graph[a][b]}" for a, b in pairwise(cycle)]
    assert not steps, f"{crate} has a cycle: " + "; ".join(steps)


def test_a_cycle_is_found_and_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/mod.rs").write_text("use crate::{b::{Two, Three}, c};\n")
    (tmp_path / "b.rs").write_text("// use crate::a::Not;\nfn f() -> crate::c::One {}\n")
    (tmp_path / "c.rs").write_text("#[cfg(test)]\nmod tests {\n    use crate::a::One;\n}\n")
    assert cycle_in(module_graph(tmp_path)) == []
    (tmp_path / "c.rs").write_text("use crate::{\n    d::X, a::One,\n};\n")
    assert cycle_in(module_graph(tmp_path)) == ["a", "b", "c", "a"]


def used_crates(crate: str) -> set[str]:
    """Give our crates that a crate depends on, except in tests."""
    manifest = (ROOT / "crates" / crate / "Cargo.toml").read_text()
    _, _, table = manifest.partition("\n[dependencies]\n")
    return set(re.findall(r"^(feedline-\w+)", table.partition("\n[")[0], flags=re.MULTILINE))


@pytest.mark.parametrize("crate", CRATES)
def test_crates_depend_downwards_only(crate: str) -> None:
    allowed = LAYERS[crate] if crate in LAYERS else {*LAYERS, *UPPER[: UPPER.index(crate)]}
    assert used_crates(crate) <= allowed
    assert used_crates("feedline-data") == {"feedline-order", "feedline-memory", "feedline-codec"}, "manifests are read"


def test_the_engine_does_not_depend_on_diagnose() -> None:
    assert "feedline-diagnose" not in used_crates("feedline-net") | used_crates("feedline-engine")


def test_the_steps_of_a_sample_name_files_and_functions_that_exist() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    way = page[page.index("## The path of a sample") : page.index("`crates/feedline-data/src`, bottom first")]
    sources = [path for crate in CRATES for path in (ROOT / "crates" / crate / "src").rglob("*.rs")]
    steps = re.findall(r"`([\w/]+\.rs)` `(?:\w+::)?(\w+)`", way)
    assert len(steps) > 15
    for file, name in steps:
        found = [path for path in sources if str(path).endswith("/" + file)]
        assert found, f"{file} is not there"
        declared = re.compile(rf"\b(fn|struct|enum|trait) {name}\b")
        assert any(declared.search(path.read_text()) for path in found), f"{file} has no {name}"
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", way, flags=re.MULTILINE)]
    assert numbers
    assert max(numbers) <= 10, "a way has at most ten steps"
