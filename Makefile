# Everything runs in .venv and target/ of this folder; each command does its own set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
RUST := $(shell find crates -name '*.rs' -o -name '*.c' -o -name Cargo.toml -o -path '*/web/*') Cargo.toml Cargo.lock
PACKAGE := $(shell find python -name '*.py' -o -name '*.pyi') pyproject.toml
# The pictures that benchmarks read; any folder of JPEG files, for bench-peers also several.
DATA ?= ../shared/data/imagenet
# Larger photographs, for bench-storage, and what it is told further, such as --volumes FOLDER.
PHOTOS ?= ../shared/data/photos
STORAGE ?=
# The shapes of KiTS19's volumes, for bench-schedule, and what it is told further, such as --resume.
SHAPES ?= ../shared/data/kits19/shapes.json
SCHEDULE ?=

# What bench-torch is told further, such as --rows tokens,starts or --quick.
TORCH ?=

# What bench-pictures is told further, such as --rows png,webp or --quick.
PICTURES ?=

# Processes that run the Python tests at once: most of these wait.
TESTERS ?= 4

# How many random kills `make faults` does, how many bad networks it tries, and how many loaders with workers it starts and leaves.
KILLS ?= 100
NETWORKS ?= 100
CYCLES ?= 1000

# How long `make fuzz` runs each target.
FUZZ_SECONDS ?= 60

.PHONY: help build wheel check-wheel demo test test-rust test-python test-fuzz fuzz faults loom memcheck lint bench bench-peers bench-schedule bench-storage bench-accuracy bench-share bench-doctor bench-torch bench-pictures docs clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/tools: tools/native.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q 'maturin>=1.9,<2' cmake 'numpy>=1.23'
	@sh tools/native.sh
	@touch $@

$(VENV)/dev: $(VENV)/tools pyproject.toml tools/browser.sh
	@echo "installing torch, jax and the test tools (a few minutes the first time)"
	@$(BIN)/pip install -q torch torchvision jax lightning accelerate keras transformers timm albumentations cloudpickle pillow webdataset pytest pytest-xdist ruff mypy nibabel scipy selenium 'moto[s3,server]' prometheus_client opentelemetry-sdk 'mkdocs-material>=9.6,<10' 'mkdocstrings[python]>=1,<2'
	@sh tools/browser.sh
	@touch $@

$(VENV)/installed: $(VENV)/tools $(RUST) $(PACKAGE)
	@echo "building the wheel (a few minutes the first time)"
	@rm -rf target/wheels
	@$(BIN)/maturin build --release --quiet --out target/wheels
	@$(BIN)/pip install -q --force-reinstall --no-deps target/wheels/feedline-*.whl
	@touch $@

build: $(VENV)/installed  ## build the wheel and install it into .venv

wheel: $(VENV)/tools  ## build the wheel that is published, for every Linux with glibc 2.28 or later
	@tools/wheel.sh

check-wheel:  ## load that wheel in a Debian 11 root (needs root)
	@tools/check_wheel.sh

demo: build  ## make pictures, train a small classifier on them, print throughput and stalls
	@test -d demo-data/train || $(BIN)/feedline synth demo-data/train --images 1500 --classes 5
	@$(BIN)/python examples/train_classifier.py demo-data/train

test:  ## everything: lints, Rust tests, short fuzzing, Python tests with the real torch
	@$(MAKE) -j2 $(VENV)/dev $(VENV)/installed
	@$(MAKE) lint test-rust test-fuzz test-python

test-rust: $(VENV)/tools
	cargo test --workspace --quiet

test-fuzz: $(VENV)/tools
	CARGO_TARGET_DIR=target cargo test --manifest-path fuzz/Cargo.toml --quiet
	fuzz/run.sh same

fuzz: $(VENV)/tools  ## hostile bytes for every reader, FUZZ_SECONDS=60 for each, under libFuzzer
	fuzz/run.sh $(FUZZ_SECONDS)

faults: $(VENV)/dev $(VENV)/installed  ## KILLS=100 random kill -9 of server, node and job, NETWORKS=100 bad networks (half an hour)
	$(BIN)/python tests/faults.py --kills $(KILLS)
	$(BIN)/python tests/torch_faults.py --kills $(KILLS) --cycles $(CYCLES)
	FEEDLINE_FAULTS=$(NETWORKS) cargo test -p feedline-net --test faults random -- --nocapture

loom:  ## the engine's own synchronisation in many interleavings (two minutes)
	CARGO_TARGET_DIR=target/loom cargo test --manifest-path loom/Cargo.toml --quiet

memcheck:  ## the memory of batches under valgrind: what is read, written and freed, and who orders it (two minutes)
	tools/memcheck.sh

test-python: $(VENV)/dev $(VENV)/installed
	$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile -m 'not busy'
	$(BIN)/python -m pytest -m busy

lint: $(VENV)/dev $(VENV)/installed
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo fmt --check --manifest-path loom/Cargo.toml
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/python -m mypy.stubtest feedline._feedline

docs: $(VENV)/dev $(VENV)/installed  ## build the documentation into target/site; every example in it runs
	$(BIN)/python -m pytest -n $(TESTERS) tests/test_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/dev $(VENV)/installed  ## measure seek indexes, shards, loader overhead and object stores; results go to bench/results
	$(BIN)/python -m bench.seek $(DATA)
	$(BIN)/python -m bench.arrays
	$(BIN)/python -m bench.object $(firstword $(DATA))

bench-peers: $(VENV)/dev $(VENV)/installed  ## install and race every peer; writes docs/benchmarks.md (half an hour)
	$(BIN)/python -m bench.peers $(DATA)

bench-schedule: $(VENV)/dev $(VENV)/installed  ## accelerator use on samples of very different cost (an hour and a quarter)
	$(BIN)/python -m bench.schedule --shapes $(SHAPES) --pictures $(firstword $(DATA)) $(SCHEDULE)

bench-storage: $(VENV)/dev $(VENV)/installed  ## traffic and time of every offload policy (half an hour)
	$(BIN)/python -m bench.storage $(DATA) $(PHOTOS) $(STORAGE)

bench-accuracy: $(VENV)/dev $(VENV)/installed  ## train a small segmentation net in every order (a few minutes)
	$(BIN)/python -m bench.accuracy

bench-share: $(VENV)/dev $(VENV)/installed  ## jobs that share; sequential reads against random ones, and what is learnt from them (an hour)
	$(BIN)/python -m bench.share $(firstword $(DATA))
	$(BIN)/python -m bench.share.sequential $(firstword $(DATA))

bench-doctor: $(VENV)/dev $(VENV)/installed  ## verdicts, predictions and remedies of the doctor against what then happens (half an hour)
	$(BIN)/python -m bench.doctor

bench-torch: $(VENV)/dev $(VENV)/installed  ## feedline.torch.DataLoader against torch's DataLoader and SPDL on unchanged datasets (half an hour)
	@$(BIN)/pip install -q pyarrow
	$(BIN)/python -m bench.torch_loader $(firstword $(DATA)) $(TORCH)

bench-pictures: $(VENV)/dev $(VENV)/installed  ## validation, colour, every picture format, masks, small samples, cold files, against torchvision, Pillow, DALI and FFCV (an hour; root for cold files)
	$(BIN)/python -m bench.pictures $(firstword $(DATA)) $(PICTURES)

clean:  ## remove what the commands made
	rm -rf $(VENV) target fuzz/artifacts fuzz/corpus demo-data bench/.venvs bench-work .pytest_cache .mypy_cache .ruff_cache
