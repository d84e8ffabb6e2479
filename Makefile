# What people and the checks call. Anything longer than a line lives in scripts/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# One place for build results whatever the caller's environment says: the targets below promise paths in it.
export CARGO_TARGET_DIR := $(CURDIR)/target

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## install what is missing, build, start the cloud: make run ARGS="--listen 127.0.0.1:7070"
	scripts/install-missing run
	exec target/release/tarn serve $(ARGS)

.PHONY: build
build: ## build target/release/tarn
	scripts/install-missing build
	cargo build --release -p tarn

.PHONY: deb
deb: build ## pack the program into target/package/tarn_….deb
	scripts/deb target/release/tarn target/package

.PHONY: dist
dist: build ## pack the program into a tar archive, with checksums and a list of its parts
	scripts/dist target/release/tarn target/package

.PHONY: test
test: ## run every test, with a PostgreSQL of its own
	scripts/install-missing test
	scripts/venv .venv e2e/requirements.txt
	scripts/with-scratch scripts/with-postgres scripts/test

.PHONY: test-fast
test-fast: ## the inner loop: the tests that need neither root nor PostgreSQL nor a browser
	scripts/install-missing check
	env -u TARN_TEST_POSTGRES cargo nextest run --workspace -E 'not (test(/^local::/) + test(/^network::/) + test(/^kill::/))'

.PHONY: flakes
flakes: ## the built suites three times, once on a quiet host and twice beside two busy loops
	scripts/install-missing test
	scripts/venv .venv e2e/requirements.txt
	scripts/with-scratch scripts/with-postgres scripts/flakes

.PHONY: conformance
# The key goes on by the environment, where no other user of the machine sees it: best leave it in TENSORPOOL_KEY from the start.
conformance: export TARN_CONFORMANCE_ENGINE := $(ENGINE)
conformance: export TARN_CONFORMANCE_KEY := $(or $(KEY),$(TENSORPOOL_KEY))
conformance: ## prove an engine by stock clients: TENSORPOOL_KEY=tp-… make conformance ENGINE=https://…
	scripts/venv .venv e2e/requirements.txt
	.venv/bin/python -m pytest e2e/conformance $(ARGS)

.PHONY: check
check: ## formatting, lints, words, documentation, the dependencies, openapi.json up to date
	scripts/install-missing check
	cargo fmt --all --check
	cargo fmt --manifest-path bench/axum_limit/Cargo.toml --check
	cargo fmt --manifest-path bench/s3bench/Cargo.toml --check
	scripts/tidy
	cargo clippy --workspace --all-targets -- -D warnings
	# Examples need the dependencies of tests: with them the features are those of the line above, and nothing is compiled again.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib --bins --examples
	# As all tests are built, so that nothing is built for them again; the binary is built with it.
	cargo nextest run --workspace -E "test(arrows::) + test(dependencies::)"
	target/debug/tarn openapi > target/openapi.json
	diff -u openapi.json target/openapi.json || { echo "openapi.json is stale: run make openapi and commit it" >&2; exit 1; }

.PHONY: audit
audit: ## known vulnerabilities of dependencies, where the database of advisories can be reached
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check advisories

.PHONY: openapi
openapi: ## regenerate openapi.json from the code
	mkdir -p target
	cargo run --quiet -p tarn -- openapi > target/openapi.json
	install -m 644 target/openapi.json openapi.json.new
	mv openapi.json.new openapi.json

.PHONY: bench-tools
bench-tools: build
	scripts/install-missing bench
	scripts/venv .venv-bench bench/requirements.txt
	cargo build --release --manifest-path bench/axum_limit/Cargo.toml --target-dir target/bench
	cargo build --release --manifest-path bench/s3bench/Cargo.toml --target-dir target/bench
	cc -O2 -Wall -shared -fPIC -o target/bench/nodelay.so bench/objects/nodelay.c -ldl
	rustc --edition 2024 -O -o target/bench/forkexec bench/jobs/forkexec.rs
	rustc --edition 2024 -O -o target/bench/bare bench/client/bare.rs

.PHONY: bench
bench: bench-tools ## measure against the baselines; rewrites the sections in docs/benchmarks.md
	.venv-bench/bin/python -m bench.spine
	.venv-bench/bin/python -m bench.instances
	.venv-bench/bin/python -m bench.images
	.venv-bench/bin/python -m bench.volumes
	.venv-bench/bin/python -m bench.objects
	.venv-bench/bin/python -m bench.jobs
	.venv-bench/bin/python -m bench.client

.PHONY: bench-compare
bench-compare: bench-tools ## measure this program and older ones in turns: make bench-compare BEFORE="path/to/tarn …"
	.venv-bench/bin/python -m bench.compare $(BEFORE)

.PHONY: soak
soak: build ## the crash tests and the schema fuzzing with their full counts; hours, not minutes
	scripts/install-missing test
	scripts/venv .venv e2e/requirements.txt
	scripts/with-scratch scripts/with-postgres scripts/soak
