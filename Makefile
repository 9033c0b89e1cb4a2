# The commands for developers. `make` lists them.

CARGO ?= cargo
# The kernels of the matrix: make matrix KERNELS=6.1. unit-vm and package-vm use only those for
# x86-64.
KERNELS ?= 6.1 6.12 arm64-4k arm64-16k
# How long the broker is attacked
SECONDS ?= 1200
# How long each fuzz target runs, and which ones: make fuzz FUZZ_SECONDS=600 FUZZ="records filters"
FUZZ_SECONDS ?= 60
FUZZ ?=
# How often the tests of races repeat what they try to meet, in percent: CI runs all of it
SCALE ?= 20
# Part of the mutants: make mutants MUTANTS="--re src/plan/"
MUTANTS ?=
# Part of the benchmarks: make bench BENCH="--suite tasks --scale 1000"
BENCH ?=

# Where make install puts files, below DESTDIR. Packages use PREFIX=/usr.
PREFIX ?= /usr/local
bindir ?= $(PREFIX)/bin
sbindir ?= $(PREFIX)/sbin
libdir ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include
datadir ?= $(PREFIX)/share
mandir ?= $(datadir)/man
docdir ?= $(datadir)/doc/taskdiag
licensedir ?= $(datadir)/licenses/taskdiag
bashdir ?= $(datadir)/bash-completion/completions
zshdir ?= $(datadir)/zsh/site-functions
fishdir ?= $(datadir)/fish/vendor_completions.d
unitdir ?= $(PREFIX)/lib/systemd/system
sysusersdir ?= $(PREFIX)/lib/sysusers.d
# The directory of the built programs, and a taskdiag that runs on this machine: they differ when
# cross-building.
PROGRAMS ?= target/release
TASKDIAG ?= $(PROGRAMS)/taskdiag
STRIP ?= strip

# Root can load BPF, so programs without BPF would be a defect: building without clang fails. All
# commands have the same value, because another one builds the BPF programs and all above them anew.
ifeq ($(shell id -u),0)
export TASKDIAG_REQUIRE_BPF := 1
endif

# Tools that dev/setup.sh installs for this clone only
export PATH := $(CURDIR)/.cache/tools/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help build install uninstall deb rpm package-test run python check features test test-clients test-python test-go test-c test-htop test-procps test-task-diag test-metrics test-report test-python-sdist conformance pictures soak soak-broker fuzz fuzz-sanitized \
	mutants matrix-quick matrix matrix-full unit-vm package-vm \
	bench lint msrv crates advisories format records docs book api clean

# All that is built for release has the same flags: with others, cargo would build it anew.
build bench soak soak-broker: export RUSTFLAGS := $(shell dev/pathflags.sh rust)
build bench soak soak-broker: export CFLAGS := $(shell dev/pathflags.sh c)

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build target/release/taskdiag, taskdiagd and libtaskdiag.so, with their line tables in .debug files
	@dev/setup.sh build
	@$(CARGO) build --release --quiet --package taskdiag-cli --package taskdiagd
	@CARGO="$(CARGO)" clients/c/build.sh
	@dev/strip.sh target/release/taskdiag target/release/taskdiagd "$$(realpath target/release/libtaskdiag.so)"
	@dev/licences.sh target/release/LICENSE-CRATES

install: ## Install what make build has built: make install PREFIX=/usr DESTDIR=/tmp/root
	@PREFIX="$(PREFIX)" bindir="$(bindir)" sbindir="$(sbindir)" libdir="$(libdir)" includedir="$(includedir)" mandir="$(mandir)" docdir="$(docdir)" licensedir="$(licensedir)" \
		bashdir="$(bashdir)" zshdir="$(zshdir)" fishdir="$(fishdir)" unitdir="$(unitdir)" sysusersdir="$(sysusersdir)" \
		DESTDIR="$(DESTDIR)" PROGRAMS="$(PROGRAMS)" TASKDIAG="$(TASKDIAG)" STRIP="$(STRIP)" dev/install.sh

uninstall: ## Remove what make install has installed, with the same variables
	@rm -f "$(DESTDIR)$(bindir)/taskdiag" "$(DESTDIR)$(sbindir)/taskdiagd" "$(DESTDIR)$(bashdir)/taskdiag" \
		"$(DESTDIR)$(zshdir)/_taskdiag" "$(DESTDIR)$(fishdir)/taskdiag.fish" "$(DESTDIR)$(unitdir)"/taskdiagd.service \
		"$(DESTDIR)$(unitdir)"/taskdiagd.socket "$(DESTDIR)$(unitdir)"/taskdiag-metrics.service "$(DESTDIR)$(unitdir)"/taskdiag-record.service "$(DESTDIR)$(sysusersdir)/taskdiagd.conf" \
		"$(DESTDIR)$(libdir)"/libtaskdiag.so* "$(DESTDIR)$(libdir)/pkgconfig/taskdiag.pc" "$(DESTDIR)$(includedir)"/taskdiag*.h \
		"$(DESTDIR)$(mandir)"/man1/taskdiag.1 "$(DESTDIR)$(mandir)"/man1/taskdiag-*.1 "$(DESTDIR)$(mandir)/man8/taskdiagd.8"
	@rm -rf "$(DESTDIR)$(docdir)" "$(DESTDIR)$(licensedir)"

deb: build ## Make Debian packages in target/package
	@dev/setup.sh package
	@dev/package.sh deb

rpm: build ## Make RPM packages in target/package
	@dev/setup.sh package
	@dev/package.sh rpm

package-test: deb rpm ## Install both kinds of packages in a small Debian, test and remove them; as root
	@dev/setup.sh package-test
	@dev/package-test.sh

run: build ## Print this machine's process table, and the source
	@target/release/taskdiag ps --stats

python: ## Make the Python client's wheel and source distribution in target/python/dist
	@dev/setup.sh python
	@clients/python/build.sh

check: ## Check what every commit needs, as any user: formatting, lints, unit tests
	@dev/setup.sh check
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	@$(CARGO) test --quiet --workspace --lib --bins

features: ## Check builds of the command without some or all features, and of the library without BPF
	@dev/setup.sh check
	@for feature in '' arrow history metrics top; do \
		$(CARGO) clippy --quiet --package taskdiag-cli --no-default-features --features "$$feature" -- --deny warnings || exit; \
	done
	@$(CARGO) clippy --quiet --package taskdiag --all-targets --no-default-features -- --deny warnings
	@$(CARGO) test --quiet --package taskdiag --no-default-features --lib >target/features.log 2>&1 || \
		{ cat target/features.log; exit 1; }

test: ## Run the Rust tests on this machine's kernel, as root; SCALE=100 repeats what meets races, and tries inputs, as often as CI
	@dev/setup.sh test
	@TASKDIAG_TEST_SCALE=$(SCALE) dev/test.sh

test-clients: test-python test-go test-c ## Run the tests of the three clients

test-report: ## Run the tests of the pages of taskdiag report in Chromium; TASKDIAG_PICTURES=DIR keeps pictures of them
	@dev/setup.sh test
	@dev/setup.sh browser
	@dev/report-test.sh

test-procps: ## Run procps' own tests of ps, pgrep and pkill on Debian's programs and on taskdiag in their place
	@dev/setup.sh test
	@dev/build.sh
	@dev/procps.sh

test-task-diag: ## Compare task_diag_all of task_diag's patches with taskdiag, as root; TASK_DIAG_ALL=PATH takes a built one
	@dev/setup.sh test
	@dev/build.sh
	@TASK_DIAG_ALL=$${TASK_DIAG_ALL:-$$(dev/task_diag/build.sh)} && export TASK_DIAG_ALL && \
		$(CARGO) test --quiet --workspace --test self_test -- --ignored

test-metrics: ## Run the tests of the metrics with Debian's Prometheus and process-exporter, as root
	@dev/setup.sh test
	@dev/metrics-test.sh

test-python: ## Run the tests of the Python client
	@dev/setup.sh test
	@dev/build.sh
	@clients/python/test.sh

test-go: ## Run the tests of the Go client
	@dev/setup.sh test
	@dev/build.sh
	@clients/go/test.sh

test-c: ## Run the tests of the C library
	@dev/setup.sh test
	@dev/build.sh
	@clients/c/test.sh

test-htop: ## Compare htop with and without the C library, for root, and for nobody through the broker
	@dev/setup.sh test
	@dev/setup.sh htop
	@dev/build.sh
	@clients/c/htop/test.sh

conformance: ## Run the cases of conformance/ with each client
	@dev/setup.sh test
	@dev/build.sh
	@clients/python/test.sh tests/test_conformance.py
	@clients/go/test.sh -run TestConformance
	@clients/c/test.sh conformance

test-python-sdist: ## Run the tests of the Python client with a wheel built from the source distribution, as by pip
	@dev/setup.sh test
	@dev/build.sh
	@SDIST=1 clients/python/test.sh

soak: ## Query all sources for a quarter of an hour while processes change
	@dev/setup.sh test
	@dev/soak.sh

matrix-quick: ## Compare BPF with the text of Debian's kernels, in virtual machines: what every change needs
	@dev/setup.sh matrix
	@dev/matrix.sh --quick $(KERNELS)

matrix: ## Run the library's tests on Debian's kernels, in virtual machines; on arm64 some of them
	@dev/setup.sh matrix
	@dev/matrix.sh $(KERNELS)

matrix-full: ## Run all tests on Debian's kernels, in virtual machines; takes long
	@dev/setup.sh matrix
	@dev/matrix.sh --full $(KERNELS)

unit-vm: build ## Test the systemd units on Debian's kernels, in virtual machines
	@dev/setup.sh vm
	@for kernel in $(filter-out arm64-%,$(KERNELS)); do dev/vm/unit.sh "$$kernel" || exit; done

package-vm: package-test ## Install, upgrade and remove the packages under systemd, in virtual machines; as root
	@dev/setup.sh vm
	@for kernel in $(filter-out arm64-%,$(KERNELS)); do dev/vm/package.sh "$$kernel" || exit; done

soak-broker: ## Attack the broker for SECONDS, and measure the answers that other clients get
	@dev/setup.sh test
	@$(CARGO) build --quiet --release --package taskdiag-zoo
	@SECONDS=$(SECONDS) $(CARGO) test --release --quiet --package taskdiagd --test soak_broker -- --ignored --nocapture

fuzz: ## Run each fuzz target for FUZZ_SECONDS
	@dev/setup.sh fuzz
	@dev/fuzz.sh none $(FUZZ_SECONDS) $(FUZZ)
	@[ -n "$(FUZZ)" ] || clients/go/test.sh -run '^$$' -fuzz FuzzDecoder -fuzztime $$((2000 * $(FUZZ_SECONDS)))x -fuzzminimizetime 10x

fuzz-sanitized: ## Run each fuzz target for FUZZ_SECONDS under AddressSanitizer
	@dev/setup.sh fuzz
	@dev/fuzz.sh address $(FUZZ_SECONDS) $(FUZZ)

mutants: ## Run mutation tests of the crates that parse and decide (hours)
	@dev/setup.sh mutants
	@RUST_BACKTRACE=0 PROPTEST_CASES=32 PROPTEST_MAX_SHRINK_ITERS=0 \
		$(CARGO) mutants --package taskdiag-core --package taskdiag-protocol --output target $(MUTANTS)

pictures: build ## Make the pictures of README from the real thing, as root
	@dev/setup.sh pictures
	@dev/pictures.py target/release/taskdiag

bench: ## Measure taskdiag and its competitors, and rewrite docs/benchmarks.md
	@dev/setup.sh bench
	@dev/bench.sh $(BENCH)

lint: ## Check formatting, lints, documentation and its links, public API, dependencies, scripts
	@dev/setup.sh lint
	@dev/links.py
	@$(CARGO) fmt --all --check
	@$(CARGO) fmt --manifest-path clients/python/Cargo.toml --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	@$(CARGO) clippy --quiet --locked --manifest-path clients/python/Cargo.toml --target-dir target --all-targets -- --deny warnings
	@dev/build.sh
	@target/debug/taskdiag fields --json | clients/generate.py --check
	@# Not at the same time: the pages of the command and the library go to the same directory.
	@RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --quiet --workspace --no-deps --bins
	@RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --quiet --workspace --no-deps --lib
	@dev/api.sh --check
	@# On success it prints one line to standard output; problems go to standard error.
	@$(CARGO) deny --log-level error check licenses bans sources >/dev/null
	@$(CARGO) deny --log-level error --manifest-path clients/python/Cargo.toml --config deny.toml --target x86_64-unknown-linux-gnu \
		check licenses bans sources >/dev/null
	@test -z "$$(gofmt -l clients/go)" || { gofmt -d clients/go; exit 1; }
	@cd clients/go && go vet ./...
	@shellcheck --external-sources dev/*.sh dev/task_diag/*.sh dev/vm/*.sh clients/c/*.sh clients/c/htop/*.sh clients/go/*.sh clients/python/*.sh .ci/run

msrv: ## Check that the library and the programs build with the oldest supported Rust
	@dev/setup.sh build
	@dev/msrv.sh

crates: ## Check that crates.io would take the library and the crates that it needs, and that they build from there
	@dev/setup.sh build
	@$(CARGO) publish --quiet --dry-run --workspace

advisories: ## Check dependencies against the RustSec database, which needs the network
	@dev/setup.sh lint
	@$(CARGO) deny --log-level error check advisories

format: ## Format the code
	@$(CARGO) fmt --all
	@$(CARGO) fmt --manifest-path clients/python/Cargo.toml
	@gofmt -w clients/go

api: ## Write docs/public-api.txt, the public items of the library
	@dev/setup.sh build
	@dev/api.sh

records: ## Write the C header of records, bpf/record_gen.h, from their definitions
	@dev/setup.sh check
	@$(CARGO) run --quiet --package taskdiag-core --example record_h > target/record_gen.h
	@mv target/record_gen.h crates/taskdiag-bpf/bpf/

docs: build ## Write docs/fields.md, docs/schema/ and the clients' fields, from the field table and the command
	@sed -i '/^<!-- Made by/,$$d' docs/fields.md
	@target/release/taskdiag fields --markdown >> docs/fields.md
	@target/release/taskdiag fields --json | clients/generate.py
	@for name in $$(target/release/taskdiag schema); do target/release/taskdiag schema $$name > docs/schema/$$name.json || exit; done

book: ## Make a book with search of docs/: target/book/index.html
	@dev/setup.sh book
	@dev/book.sh

clean: ## Remove what was built
	@$(CARGO) clean --quiet
