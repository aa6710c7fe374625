# The one list of commands: people, CI and hooks call these. `make help` shows it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

RUST := $(shell find rust benches -name '*.rs' -o -name 'Cargo.toml') Cargo.toml Cargo.lock
BASE := $(VENV)/.base
DEPS := $(VENV)/.deps
CORE := $(VENV)/.core
BUILT := $(VENV)/.built

.PHONY: help demo test lint format test-forced test-rust test-python test-neon soak docs wheel package paper bench bench-tiny clean cargo
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(CORE) ## Set up what it needs, and run the main job on the embedded word vectors
	@echo "Running the demo: half a minute or so."
	$(BIN)/compcodes demo

test: test-rust test-python ## Set everything up and run every test, the documentation's examples too

test-rust: cargo
	@echo "Building and running the Rust tests: some minutes the first time."
	cargo test --workspace --release --quiet

test-python: $(BUILT)
	$(BIN)/python -m pytest -q --durations=10

test-forced: $(BUILT) ## The tests that kernels can change, on each lesser instruction set, and in tiny chunks
	@set -e; for isa in $$($(BIN)/python -c 'from compcodes import _core; print(*_core.isas()[:-1])'); do \
		echo "COMPCODES_ISA=$$isa"; COMPCODES_ISA=$$isa $(BIN)/python -m pytest -q -m isa -p no:cacheprovider; \
	done
	COMPCODES_CHUNK=7 $(BIN)/python -m pytest -q -m isa -p no:cacheprovider
	COMPCODES_CHUNK=7 cargo test -p compcodes --lib --tests --release --quiet

ARM := aarch64-unknown-linux-gnu

test-neon: cargo ## The Rust tests as 64-bit ARM: needs qemu-user, gcc-aarch64-linux-gnu and Rust's target for it
	@set -e; \
	if [ "$$(uname -m)" = aarch64 ]; then exec cargo test -p compcodes --lib --tests --release --quiet; fi; \
	if ! command -v qemu-aarch64 > /dev/null || ! command -v aarch64-linux-gnu-gcc > /dev/null; then \
		echo "test-neon skipped: apt install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross" >&2; exit 0; \
	fi; \
	if ! ls "$$(rustc --print target-libdir --target $(ARM))"/libcore-*.rlib > /dev/null 2>&1; then \
		echo "test-neon skipped: this Rust toolchain lacks $(ARM); rustup target add $(ARM)" >&2; exit 0; \
	fi; \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
	cargo test -p compcodes --lib --tests --release --quiet --target $(ARM)

SOAK := 600

soak: $(BUILT) ## Ten minutes of random changes and searches, damaged files and killed saves; SOAK=SECONDS
	COMPCODES_SOAK=$$(($(SOAK) / 2)) $(BIN)/python -m pytest -q tests/test_stateful.py -k soak
	$(BIN)/python tests/soak/searches.py --seconds $$(($(SOAK) * 2 / 5))
	$(BIN)/python tests/soak/fuzz_files.py --count 10000
	$(BIN)/python tests/soak/kill_saves.py --count 200
	$(BIN)/python tests/soak/kill_workers.py --count 100

lint: $(BUILT) ## rustfmt, clippy, ruff, mypy, stubtest: warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff check python experiments tests benches docs examples
	$(BIN)/ruff format --check python experiments tests benches docs examples
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/mypy --config-file= --ignore-missing-imports benches
	$(BIN)/mypy --package experiments
	$(BIN)/mypy tests/typed.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	MYPYPATH=python $(BIN)/stubtest compcodes._core

format: $(DEPS) ## Let rustfmt and ruff have their way
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet python experiments tests benches docs examples
	$(BIN)/ruff format python experiments tests benches docs examples

docs: $(BUILT) ## Run the examples of docstrings and the Rust program; build the site into site/ and the Rust documentation
	$(BIN)/python -m pytest -q --doctest-modules python/compcodes
	rm -rf site docs/api/generated
	$(BIN)/sphinx-build -q -W --keep-going -E -d target/doctrees docs site
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --quiet -p compcodes
	cargo run --release --quiet -p compcodes --example train

wheel: $(DEPS) cargo ## Build a wheel, install it into a fresh environment, and try it there
	rm -rf dist
	$(BIN)/maturin build --release --quiet --out dist
	rm -rf $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install --quiet dist/*.whl
	cd $(VENV)-wheel && bin/compcodes --version && bin/python -I ../tests/smoke.py
	rm -rf $(VENV)-wheel

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
PACKED := $(CURDIR)/target/package/compcodes-$(VERSION)

package: $(DEPS) cargo ## Pack crate and sdist; build examples/rust against the packed crate, and the wheel offline from the sdist
	cargo package --quiet --package compcodes --no-verify --allow-dirty
	rm -rf $(PACKED)
	tar -xzf $(PACKED).crate -C target/package
	cp Cargo.lock examples/rust/Cargo.lock
	cd examples/rust && CARGO_TARGET_DIR=$(CURDIR)/target/example \
		cargo run --quiet --config 'patch.crates-io.compcodes.path="$(PACKED)"'
	cd examples/rust && CARGO_TARGET_DIR=$(CURDIR)/target/example \
		cargo test --quiet --doc --config 'patch.crates-io.compcodes.path="$(PACKED)"'
	rm -rf dist
	CARGO_NET_OFFLINE=true CARGO_TARGET_DIR=$(CURDIR)/target $(BIN)/maturin build --release --quiet --locked --sdist --out dist
	$(BIN)/twine check --strict dist/*

paper: $(BUILT) ## Run the paper's experiments and write docs/paper.md; COMPCODES_DATA names larger data
	$(BIN)/python -m experiments all --out docs/results --page docs/paper.md

bench: $(BUILT) ## Measure against the rivals that are installed; COMPCODES_DATA names larger data
	$(BIN)/python benches/training.py
	$(BIN)/python benches/search.py
	$(BIN)/python benches/streams.py
	$(BIN)/python benches/accuracy.py
	$(BIN)/python benches/exact.py
	$(BIN)/python benches/eta.py
	$(BIN)/python benches/effort.py
	$(BIN)/python benches/bytes.py
	$(BIN)/python benches/methods.py
	$(BIN)/python benches/lists.py
	$(BIN)/python benches/lists_scale.py
	$(BIN)/python benches/certified.py
	$(BIN)/python benches/memory.py
	$(BIN)/python benches/cluster.py
	$(BIN)/python benches/serving.py
	$(BIN)/python benches/nibbles.py
	$(BIN)/python benches/kinds.py
	$(BIN)/python benches/upper.py
	$(BIN)/python benches/exclude.py
	cargo run --release --quiet -p compcodes-benches --bin scan

bench-tiny: $(BUILT) ## The same in seconds, so that it cannot rot
	$(BIN)/python benches/training.py --tiny
	$(BIN)/python benches/search.py --tiny
	$(BIN)/python benches/streams.py --tiny
	$(BIN)/python benches/accuracy.py --tiny
	$(BIN)/python benches/exact.py --tiny
	$(BIN)/python benches/eta.py --tiny
	$(BIN)/python benches/effort.py --tiny
	$(BIN)/python benches/bytes.py --tiny
	$(BIN)/python benches/methods.py --tiny
	$(BIN)/python benches/lists.py --tiny
	$(BIN)/python benches/lists_scale.py --tiny
	$(BIN)/python benches/certified.py --tiny
	$(BIN)/python benches/memory.py --tiny
	$(BIN)/python benches/cluster.py --tiny
	$(BIN)/python benches/serving.py --tiny
	$(BIN)/python benches/nibbles.py --tiny
	$(BIN)/python benches/kinds.py --tiny
	$(BIN)/python benches/upper.py --tiny
	$(BIN)/python benches/exclude.py --tiny
	$(BIN)/python benches/before.py --tiny --fits "the words of the demo;3 × 2"
	cargo run --release --quiet -p compcodes-benches --bin scan -- 20000

clean: ## Remove what was built
	rm -rf target dist site docs/api/generated docs/measured $(VENV) $(VENV)-wheel demo-output

cargo:
	@command -v cargo > /dev/null || { echo "compcodes needs the Rust toolchain, 1.89 or later: install it from https://rustup.rs, then run this again." >&2; exit 1; }

# The environment with what builds the package and draws; the demo needs no more.
$(BASE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "compcodes needs Python 3.10 or later; PYTHON=… names one." >&2; exit 1; }
	@echo "Creating the environment in $(VENV): NumPy, Matplotlib and maturin, about 200 MB, a minute or so."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: on Debian and Ubuntu, apt install python3-venv." >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --group demo
	@touch $@

$(DEPS): $(BASE)
	@echo "Installing what tests, lint and documentation need: about 2 GB, some minutes."
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@

# A group is named, because maturin installs that of developers by default.
$(CORE): $(BASE) $(RUST) | cargo
	@echo "Building the Rust core: two minutes or so the first time, on two cores."
	@$(BIN)/maturin develop --release --quiet --group demo > /dev/null
	@touch $@

$(BUILT): $(DEPS) $(CORE)
	@touch $@
