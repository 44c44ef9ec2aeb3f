"""Facts that are stated in two places agree."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import feedline as fl
from feedline import ops, testing

ROOT = Path(__file__).parent.parent
OPS = [getattr(ops, name) for name in ops.__all__ if name != "Op"]
SIZED = ("Resize", "CenterCrop", "RandomCrop", "RandomResizedCrop", "PadTo", "RandomBalancedCrop")
OF_VOLUMES = (
    "ResampleSpacing", "ClipNormalize", "PadTo", "RandomBalancedCrop", "RandomFlip3d", "Cast", "RandomBrightness",
    "GaussianNoise",
)  # fmt: skip


def tracked(*endings: str) -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [ROOT / name for name in names if name.endswith(endings) and (ROOT / name).is_file()]


def example(op: type[ops.Op]) -> ops.Op:
    arguments = {"Map": ("numpy:flip",)}.get(op.__name__, (8,) if op.__name__ in SIZED else ())
    return op(*arguments)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_python_and_rust_agree_on_the_parameters_and_defaults_of_each_op(op: type[ops.Op], tmp_path: Path) -> None:
    given = example(op)
    of_volumes = op.__name__ in OF_VOLUMES
    tensor_op = op.__name__ in ("ToTensor", "Normalize")
    chain = [given] if of_volumes or op is ops.DecodeImage else [ops.DecodeImage(), given]
    for name in ("a_x.npy", "a_y.npy"):
        np.save(tmp_path / name, np.zeros((8, 8, 8)))
    source = fl.volumes(tmp_path) if of_volumes else fl.files({"image": ["x.jpg"]})
    native = fl.Loader(source, chain, batch_size=1, ragged=() if tensor_op else ("image",))
    written = native.plan.to_toml()
    table = written.split("[[ops]]")[len(chain)].split("\n[run]")[0].split("\n\n")[0]
    in_rust = {line.split(" = ")[0] for line in table.strip().splitlines()} - {"op"}
    in_python = {field.name for field in dataclasses.fields(given) if getattr(given, field.name) is not None}  # type: ignore[arg-type]
    assert in_rust == in_python
    files = 'kind = "files"\nfields = { image = ["x.jpg"] }\n'
    volumes = f'kind = "volumes"\nroot = "{tmp_path}"\n'
    bare = f'batch_size = 1\nragged = ["image"]\n[source]\n{volumes if of_volumes else files}'
    required = 'fn = "numpy:flip"\n' if op is ops.Map else "size = 8\n" if op.__name__ in SIZED else ""
    decode = "" if of_volumes or op is ops.DecodeImage else '[[ops]]\nop = "DecodeImage"\n'
    text = f'{bare}{decode}[[ops]]\nop = "{op.__name__}"\n{required}'
    defaults = fl.Plan.from_toml(text, allow_functions=True)
    assert defaults.fingerprints["values"] == native.plan.fingerprints["values"], "a default differs"


def test_python_and_rust_agree_on_how_many_slabs_a_worker_maps() -> None:
    found = {
        (ROOT / file).name: re.findall(pattern, (ROOT / file).read_text())
        for file, pattern in [
            ("crates/feedline-net/src/worker/link.rs", r"const MAX_SLABS: usize = (\d+);"),
            ("python/feedline/torch/worker/maker.py", r"_MOST_SLABS = (\d+)"),
        ]
    }
    assert len(found["link.rs"]) == 1
    assert found["link.rs"] == found["maker.py"]


def test_feedline_ops_exports_only_ops() -> None:
    assert all(issubclass(getattr(ops, name), ops.Op) for name in ops.__all__)
    public = {name for name in vars(ops) if not name.startswith("_")}
    defined = {name for name in public if getattr(getattr(ops, name), "__module__", "") == "feedline.ops"}
    assert defined == set(ops.__all__)


def test_every_op_of_the_registry_has_a_python_class() -> None:
    with pytest.raises(fl.PlanError) as caught:
        fl.Plan.from_toml(
            'batch_size = 1\n[source]\nkind = "synthetic"\nn = 1\nshape = [1]\n[[ops]]\nop = "NoSuchOp"\n'
        )
    known = str(caught.value).split("there are ")[1].split(", ")
    assert sorted(known) == sorted([*(op.__name__ for op in OPS), "Delay"])
    assert issubclass(testing.Delay, ops.Op)


def test_the_architecture_page_names_every_crate_and_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    crates = [f"crates/{path.name}" for path in (ROOT / "crates").iterdir()]
    sources = [ROOT / f"crates/feedline-{name}/src" for name in ("data", "engine", "diagnose", "net")]
    folders = [f"{path.name}/" for source in sources for path in source.iterdir() if path.is_dir()]
    missing = [name for name in crates + folders if f"`{name}`" not in text]
    assert not missing


def test_every_law_is_held_by_a_test_that_names_it() -> None:
    source = "".join(path.read_text() for path in tracked(".rs", ".py"))
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for law in range(1, 9):
        assert re.search(rf"fn law_{law}_\w+\(", source), f"law {law} has no test"
        assert f"`law_{law}_*`" in page


def test_every_promise_of_the_security_guide_is_held_by_the_test_that_it_names() -> None:
    guide = (ROOT / "docs/concepts/security.md").read_text()
    source = "".join(path.read_text() for path in tracked(".rs", ".py"))
    named = [name for name in re.findall(r"`([a-z0-9_]+)`", guide) if name.count("_") > 3]
    assert len(named) > 25
    assert [name for name in named if not re.search(rf"(fn|def) {name}\b", source)] == []


def test_every_op_stands_in_the_guide() -> None:
    guide = (ROOT / "docs/how-to/transforms.md").read_text()
    assert [op.__name__ for op in OPS if f"`{op.__name__}(" not in guide] == []


def test_every_decision_is_listed_and_short() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    for page in (ROOT / "docs/adr").glob("0*.md"):
        assert page.name in index
        assert len(page.read_text().splitlines()) <= 40


def test_links_between_documents_lead_somewhere() -> None:
    for page in tracked(".md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_files_stay_readable() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in tracked(".rs", ".py")}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}


def test_unsafe_code_stays_where_it_is_allowed() -> None:
    allowed = ("crates/feedline-memory/", "crates/feedline-codec/", "crates/feedline-py/src/buffer.rs")
    for path in tracked(".rs"):
        if not str(path.relative_to(ROOT)).startswith(allowed):
            assert not re.search(r"\bunsafe\s*(\{|fn|impl)", path.read_text()), path


def test_kernels_of_other_processors_use_names_that_exist() -> None:
    """The compiler checks only the kernels of the machine that it runs on."""
    kernels = ROOT / "crates/feedline-codec/src/kernels"
    for path in kernels.glob("*.rs"):
        text = path.read_text()
        for module, names in re.findall(r"use crate::kernels::(\w+)::\{([^}]*)\};", text):
            defined = (kernels / f"{module}.rs").read_text()
            for name in re.findall(r"\w+", names):
                assert re.search(rf"(struct|enum|trait|fn|const|type) {name}\b", defined), f"{path.name} uses {name}"
        lines = text.splitlines()
        for before, line in pairwise(lines):
            if re.match(r"use crate::kernels.*\b(x86|neon)\b", line):
                assert before.startswith("#[cfg(target_arch"), f"{path.name}: {line}"


def test_every_python_class_of_the_native_module_is_frozen() -> None:
    declared = [line for path in tracked(".rs") for line in path.read_text().splitlines() if "#[pyclass" in line]
    assert declared
    assert [line for line in declared if "frozen" not in line] == []


def test_importing_starts_nothing() -> None:
    code = "import os, feedline; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    plain = "import os, numpy; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    run = [subprocess.run([sys.executable, "-c", text], capture_output=True).stdout for text in (code, plain)]
    assert run[0] == run[1]


def test_figures_of_the_readme_are_those_of_the_committed_results() -> None:
    readme = (ROOT / "README.md").read_text()
    results = json.loads((ROOT / "bench/results/peers-imagenet.json").read_text())["results"]
    rows = [line for line in readme.splitlines() if re.search(r"^\|.*`\)", line)]
    assert len(rows) > 5
    for row in rows:
        name = re.findall(r"\(`([^`]+)`\)", row)[0]
        result, figures = results[name], [cell.strip() for cell in row.split("|")[2:-1]]
        expected = [
            f"{result['samples_per_second']:.0f}",
            f"{result['cpu_ms_per_sample']:.2f}",
            f"{result['peak_mb']}",
            f"{result['first_batch_seconds']:.2f}",
        ]
        assert figures == expected, name


def test_figures_of_object_stores_are_those_of_the_committed_results() -> None:
    guide = (ROOT / "docs/how-to/remote-data.md").read_text()
    result = json.loads((ROOT / "bench/results/object.json").read_text())["results"]["imagenet"]
    assert f"{result['fewer_bytes']:.2f}x fewer bytes" in guide
    assert result["fewer_bytes"] >= 1.4
    assert result["seek_index"]["requests_per_sample"] <= 1.05


def test_figures_of_approximate_decoding_are_those_of_the_committed_results() -> None:
    guide = (ROOT / "docs/concepts/seek-index.md").read_text()
    results = json.loads((ROOT / "bench/results/seek.json").read_text())["results"]
    for name, result in results.items():
        if error := result.get("approximate"):
            figures = [error["psnr_of_all_db"], error["psnr_worst_picture_db"], error["p99_9_difference"]]
            cells = [f"{figures[0]:.1f}", f"{figures[1]:.1f}", f"{figures[2]:.0f}", f"{error['max_difference']}"]
            assert f"| {name} | {' | '.join(cells)} |" in guide


def test_the_page_of_benchmarks_is_what_the_committed_results_give() -> None:
    command = [sys.executable, "-m", "bench.peers.page", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_the_table_of_slow_samples_is_the_committed_result() -> None:
    guide = (ROOT / "docs/concepts/slow-samples.md").read_text()
    loaders = ("least slack", "first come", "torch in order", "torch out of order")
    for title, medians in json.loads((ROOT / "bench/results/schedule.json").read_text())["results"].items():
        use = [f"{medians[loader]['use']:.3f}" for loader in loaders]
        row = f"| {title} | {use[0]} | {medians['least slack']['bound']:.3f} | {' | '.join(use[1:])} |"
        assert row in guide, title


def test_the_table_of_offload_policies_is_the_committed_result() -> None:
    guide = (ROOT / "docs/how-to/near-storage.md").read_text()
    for name, data in json.loads((ROOT / "bench/results/storage.json").read_text())["results"]["policies"].items():
        for policy, found in data["policies"].items():
            sent = found["bytes_per_sample"]
            row = f"| {name} | `{policy}` | {sent / 1e3:.1f} | {data['mean_file_bytes'] / sent:.2f} | "
            row += f"{found['best_epoch_seconds']:.2f} | {found['storage_cpu_ms_per_sample']:.2f} | "
            assert row + f"{100 * (1 - found['candidates'].get('raw', 0.0)):.0f} % |" in guide, (name, policy)
    volumes = json.loads((ROOT / "bench/results/storage.json").read_text())["results"]["volumes"]
    fewer = volumes["mean_file_bytes"] / volumes["auto"]["bytes_per_sample"]
    assert f"at the server. That sends {fewer:.1f}x fewer" in guide


def test_the_tables_of_reading_in_sequence_are_the_committed_result() -> None:
    guide = (ROOT / "docs/how-to/sequential-reads.md").read_text()
    results = json.loads((ROOT / "bench/results/share-sequential.json").read_text())["results"]
    bandwidth = results["disk"]["sample_bytes_with_headers"] / 150e6
    for name, found in results["disk"]["contenders"].items():
        rate = found["samples_per_second"]
        assert f"| `{name}` | {rate:.0f} | {100 * rate * bandwidth:.0f} % |" in guide, name
    for name, found in results["learning"].items():
        row = f"| `{name}` | {100 * found['mean']:.1f} % | {100 * found['standard_error']:.1f} |"
        assert row in guide, name


def test_the_figures_of_jobs_that_share_are_the_committed_result() -> None:
    command = [sys.executable, "-m", "bench.share.page", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
