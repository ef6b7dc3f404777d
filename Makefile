# flashscope: `make demo` shows what it does, `make test` runs every test as CI does.

PREFIX ?= /usr/local
CARGO := tools/cargo
FLASHSCOPE := target/release/flashscope

# The directory whose agents the command carries (crates/targets/build.rs).
EMBED := FLASHSCOPE_EMBED_AGENTS=$(CURDIR)/agent/build/embed

.PHONY: help all build agent agents embed sqlite demo test check reference bench install dist deb dist-check deb-check clean packages-demo packages-check packages-test packages-bench packages-dist

all: build

## This list.
help:
	@awk '/^## /{text = text substr($$0, 3) " "; next} /^[a-z-]+:/{if (text) {sub(/ $$/, "", text); name = $$1; sub(/:.*/, "", name); printf "make %-12s%s\n", name, text; text = ""}} !NF {text = ""}' Makefile

## The product: the command, with the agents of every architecture that this machine has a compiler for.
build: embed
	$(EMBED) $(CARGO) build --release --locked -p flashscope

## The agents of every architecture that this machine has a compiler for.
agents:
	$(MAKE) --no-print-directory -C agent all

## The agents in the form that goes into the command.
embed:
	@$(MAKE) --no-print-directory -C agent embed

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

packages-dist:
	@tools/ensure-packages dist

## The main job: boots the boards, prints the verdict, writes out/demo/report.html.
demo: packages-demo
	@echo "Building the agents (armhf for the board, x86_64 for this host)"
	@$(MAKE) --no-print-directory -s -C agent embed ARCHS="armhf x86_64" STRICT=1
	@echo "Building flashscope"
	@$(EMBED) $(CARGO) build --release --locked -p flashscope
	@$(FLASHSCOPE) demo --output out/demo

## Format, lint, documentation, unit tests.
check: packages-check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) test --workspace --lib --bins --locked
	$(MAKE) --no-print-directory -C agent test

## Writes what is generated in docs/reference: the command line, and the table of formats.
reference:
	$(CARGO) run --quiet --locked --bin flashscope -- man --reference docs/reference

## Everything that can run here, virtual boards included. Its last line is the summary.
test: packages-test
	@tools/run-tests

## Figures of cost, as ratios; raw results go to bench/runs/.
bench: packages-bench build
	@bench/run
	@bench/trace-decode/run
	@bench/trace-decode/threads
	@bench/readahead/run

## Installs what is built, and builds it where this is a first install. Says which agents it carries.
install:
	@[ -x $(FLASHSCOPE) ] || $(MAKE) --no-print-directory build
	install -D -m 755 $(FLASHSCOPE) "$(DESTDIR)$(PREFIX)/bin/flashscope"
	@umask 022; $(FLASHSCOPE) man "$(DESTDIR)$(PREFIX)/share/man/man1"
	@umask 022; mkdir -p "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	@umask 022; $(FLASHSCOPE) completions bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/flashscope"
	@umask 022; $(FLASHSCOPE) completions zsh >"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flashscope"
	@umask 022; $(FLASHSCOPE) completions fish >"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flashscope.fish"
	@echo "Installed in $(DESTDIR)$(PREFIX):"
	@$(FLASHSCOPE) --version

## The release in out/dist: a static program as a tarball, with its SHA-256, and the Debian packages. ARCH=aarch64 for another.
# With pages, completions, licence and SBOM. FLASHSCOPE_DIST_HOST: a flashscope that runs here, for another ARCH.
ARCH ?= $(shell uname -m)
dist: packages-dist embed
	@binary=$$(tools/dist build $(ARCH)) && tools/dist pack $$binary $(ARCH) out/dist && tools/dist deb $$binary $(ARCH) out/dist
	@tools/dist agent-debs out/dist

## The Debian packages alone: flashscope for this architecture, flashscope-agent for every one.
deb: packages-dist embed
	@binary=$$(tools/dist build $(ARCH)) && tools/dist deb $$binary $(ARCH) out/dist
	@tools/dist agent-debs out/dist

## Builds the last commit twice, in two directories, and compares the files.
dist-check: packages-dist
	@tools/dist check
## The Debian packages and the tarball: a user's first three commands in clean chroots.
deb-check: dist
	@tests/deb-install out/dist

## Removes everything that make built.
clean:
	$(CARGO) clean
	$(MAKE) --no-print-directory -C agent clean
	rm -rf out
