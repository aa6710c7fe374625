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

# Tests of several files at once. A file stays together: its tests share what they fit.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile
# One choice of packages everywhere: with another, dependencies have other features, and the core is compiled anew.
PROGRAMS := cargo build --workspace --release --bins --examples --quiet
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

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
	$(PYTEST) --durations=10

test-forced: $(BUILT) ## The tests that kernels can change, on each lesser instruction set, the least of them in tiny chunks
	@set -e; chunk=7; for isa in $$($(BIN)/python -c 'from compcodes import _core; print(*_core.isas()[:-1])'); do \
		echo "COMPCODES_ISA=$$isa COMPCODES_CHUNK=$$chunk"; \
		COMPCODES_ISA=$$isa COMPCODES_CHUNK=$$chunk $(PYTEST) -m isa -p no:cacheprovider; chunk=; \
	done
	COMPCODES_CHUNK=7 cargo test --workspace --lib --tests --release --quiet

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
	$(PROGRAMS)
	$(RELEASE)/examples/train

wheel: $(DEPS) cargo ## Build a wheel, install it into a fresh environment, and try it there
	rm -rf dist
	$(BIN)/maturin build --release --quiet --out dist
	rm -rf $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install --quiet dist/*.whl
	cd $(VENV)-wheel && bin/compcodes --version && bin/python -I ../tests/smoke.py
	rm -rf $(VENV)-wheel

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
PACKED := $(CURDIR)/target/package
EXAMPLE := --config 'patch.crates-io.compcodes.path="$(PACKED)/compcodes-$(VERSION)"'

package: $(DEPS) cargo ## Pack crate and sdist; build examples/rust against the packed crate, and a wheel offline from the sdist
	cargo package --quiet --package compcodes --no-verify --allow-dirty
	rm -rf $(PACKED)/compcodes-$(VERSION) $(PACKED)/sdist dist
	tar -xzf $(PACKED)/compcodes-$(VERSION).crate -C $(PACKED)
	cp Cargo.lock examples/rust/Cargo.lock
	cd examples/rust && CARGO_TARGET_DIR=$(CURDIR)/target/example cargo run --quiet $(EXAMPLE)
	cd examples/rust && CARGO_TARGET_DIR=$(CURDIR)/target/example cargo test --quiet --doc $(EXAMPLE)
	$(BIN)/maturin sdist --out dist > /dev/null
	$(BIN)/twine check --strict dist/*
	mkdir $(PACKED)/sdist && tar -xzf dist/*.tar.gz -C $(PACKED)/sdist --strip-components 1
	cd $(PACKED)/sdist && CARGO_NET_OFFLINE=true CARGO_PROFILE_DEV_OPT_LEVEL=0 \
		$(CURDIR)/$(BIN)/maturin build --quiet --locked --out built  # not for use: that it builds is all that counts

paper: $(BUILT) ## Run the paper's experiments and write docs/paper.md; COMPCODES_DATA names larger data
	$(BIN)/python -m experiments all --out docs/results --page docs/paper.md

BENCHES := training search streams accuracy exact eta effort bytes methods lists lists_scale certified memory cluster \
	serving nibbles kinds upper exclude

bench: $(BUILT) ## Measure against the rivals that are installed; COMPCODES_DATA names larger data
	set -e; for name in $(BENCHES); do $(BIN)/python benches/$$name.py; done
	$(PROGRAMS)
	$(RELEASE)/scan

bench-tiny: $(BUILT) ## The same in seconds, two at a time, so that it cannot rot
	$(MAKE) --no-print-directory --output-sync --jobs 2 $(BENCHES:%=tiny-%) tiny-before
	$(PROGRAMS)
	$(RELEASE)/scan 20000

tiny-before: SETTINGS := --fits "the words of the demo;3 × 2"

tiny-%:
	$(BIN)/python benches/$*.py --tiny $(SETTINGS)

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
