# Every command that a person needs. `make` lists them.

CARGO ?= cargo
# What of the matrix to run: make matrix KERNELS=6.1. Of those unit-vm takes the x86-64 ones.
KERNELS ?= 6.1 6.12 arm64-4k arm64-16k
# How long the broker is attacked
SECONDS ?= 1200
# How often fuzzers run
FUZZ_RUNS ?= 10000000
# Part of the mutants: make mutants MUTANTS="--re src/plan.rs"
MUTANTS ?=
# Part of the benchmarks: make bench BENCH="--scale 1000 --filter library"
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help build run test soak soak-broker fuzz fuzz-sanitized mutants matrix matrix-full unit-vm bench lint format docs clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build target/release/taskdiag and taskdiagd
	@dev/setup.sh build
	@$(CARGO) build --release --quiet --package taskdiag-cli --package taskdiagd

run: build ## Print this machine's process table, and who answered
	@target/release/taskdiag ps --stats

test: ## Run all tests on this machine's kernel
	@dev/setup.sh test
	@dev/test.sh

soak: ## Ask all sources for a quarter of an hour while everything around changes
	@dev/setup.sh test
	@dev/soak.sh

matrix: ## Run the library's tests on Debian's kernels, in virtual machines; on arm64 some of them
	@dev/setup.sh matrix
	@dev/matrix.sh $(KERNELS)

matrix-full: ## The same with all tests, which takes long
	@dev/setup.sh matrix
	@dev/matrix.sh --full $(KERNELS)

unit-vm: build ## Try the broker's systemd units on Debian's kernels, in virtual machines
	@dev/setup.sh vm
	@for kernel in $(filter-out arm64-%,$(KERNELS)); do dev/vm/unit.sh "$$kernel" || exit; done

soak-broker: ## Attack the broker for SECONDS, and measure what others get meanwhile
	@dev/setup.sh test
	@SECONDS=$(SECONDS) $(CARGO) test --release --quiet --package taskdiagd --test soak_broker -- --ignored --nocapture

fuzz: ## Feed the broker's encoder and the client's decoder with what nobody would send, FUZZ_RUNS times
	@TASKDIAG_FUZZ_RUNS=$(FUZZ_RUNS) $(CARGO) test --release --quiet --package taskdiagd --bin taskdiagd fuzz -- --nocapture

fuzz-sanitized: ## The same under AddressSanitizer
	@TASKDIAG_FUZZ_RUNS=$(FUZZ_RUNS) RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) test --release --quiet --package taskdiagd --bin taskdiagd \
		--target "$$(rustc --print host-tuple)" --target-dir target/sanitized fuzz -- --nocapture

mutants: ## Change one thing after the other in what decides and parses, to see whether a unit test notices (hours)
	@dev/setup.sh mutants
	@$(CARGO) mutants --package taskdiag-core --package taskdiag-protocol --output target $(MUTANTS)

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
