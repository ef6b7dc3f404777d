# flashscope: `make demo` shows what it does, `make test` runs every test as CI does.

ARCHS := x86_64 aarch64 armhf armel
PREFIX ?= /usr/local
CARGO := tools/cargo
FLASHSCOPE := target/release/flashscope

.PHONY: all build agent agents sqlite demo test check bench install clean packages-demo packages-check packages-test packages-bench

all: build agents

## The product: the command and the agents of every architecture.
build:
	$(CARGO) build --release --locked -p flashscope

agents:
	$(MAKE) --no-print-directory -C agent all

## One agent: make agent CROSS=mips-linux-gnu- [ARCH=mips]
agent:
	$(MAKE) --no-print-directory -C agent one $(if $(CROSS),CROSS=$(CROSS)) $(if $(ARCH),ARCH=$(ARCH))

## bench sqlite's program for every architecture; cargo fetches SQLite's source.
sqlite:
	$(MAKE) --no-print-directory -C agent sqlite

packages-demo:
	@tools/ensure-packages demo

packages-check:
	@tools/ensure-packages check

packages-test:
	@tools/ensure-packages test

packages-bench:
	@tools/ensure-packages bench

## The main job: boots the boards, prints the verdict, writes out/demo/report.html.
demo: packages-demo
	@echo "Building the agents (armhf for the board, x86_64 for this host)"
	@$(MAKE) --no-print-directory -s -C agent one ARCH=armhf
	@$(MAKE) --no-print-directory -s -C agent one ARCH=x86_64
	@echo "Building flashscope"
	@$(CARGO) build --release --locked -p flashscope
	@$(FLASHSCOPE) demo --output out/demo

## Format, lint, unit tests: two minutes.
check: packages-check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --lib --bins --locked
	$(MAKE) --no-print-directory -C agent test

## Everything that can run here, virtual boards included. Its last line is the summary.
test: packages-test
	@tools/run-tests

## Figures of cost, as ratios; raw results go to bench/runs/.
bench: packages-bench build agents
	@bench/run
	@bench/trace-decode/run
	@bench/trace-decode/threads
	@bench/readahead/run

install: build agents
	install -D -m 755 $(FLASHSCOPE) $(DESTDIR)$(PREFIX)/bin/flashscope
	$(MAKE) --no-print-directory -C agent install DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)

clean:
	$(CARGO) clean
	$(MAKE) --no-print-directory -C agent clean
	rm -rf out
