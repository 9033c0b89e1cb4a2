# Every command that a person needs. `make` lists them.

CARGO ?= cargo
# What of the matrix to run: make matrix KERNELS=6.1
KERNELS ?= 6.1 6.12
# Part of the benchmarks: make bench BENCH="--scale 1000 --filter library"
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help build run test matrix bench lint format docs clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build target/release/taskdiag and taskdiagd
	@dev/setup.sh build
	@$(CARGO) build --release --quiet --package taskdiag-cli --package taskdiagd

run: build ## Print this machine's process table, and who answered
	@target/release/taskdiag ps --stats

test: ## Run all tests on this machine's kernel
	@dev/setup.sh test
	@dev/test.sh

matrix: ## Run the tests on Debian's kernels, in virtual machines
	@dev/setup.sh matrix
	@dev/matrix.sh $(KERNELS)

bench: ## Measure everything beside its competitors; rewrites docs/benchmarks.md
	@dev/setup.sh bench
	@dev/bench.sh $(BENCH)

lint: ## Check formatting, lints, shell scripts and generated documents
	@dev/setup.sh lint
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	@RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --quiet --workspace --no-deps
	@shellcheck --external-sources dev/*.sh dev/vm/*.sh .ci/run

format: ## Format the code
	@$(CARGO) fmt --all

docs: build ## Write the generated documents
	@target/release/taskdiag fields --markdown > docs/fields.md

clean: ## Remove what was built
	@$(CARGO) clean --quiet
