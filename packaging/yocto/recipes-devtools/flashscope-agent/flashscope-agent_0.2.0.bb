SUMMARY = "Recording agent of flashscope, for boards that record by themselves"
DESCRIPTION = "Records what a board's storage does: raw NAND, block devices, the page cache. One static program of about 1 MiB."
SECTION = "devel"
LICENSE = "Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE;md5=3b83ef96387f14655fc854ddc3c6bd57"

# The C library's static half: the agent runs on a bare root file system.
DEPENDS += "virtual/${MLPREFIX}libc"

# The tree that this layer lies in.
SRC_URI = ""
inherit externalsrc

EXTERNALSRC = "${FLASHSCOPE_SOURCE}"
EXTERNALSRC_BUILD = "${WORKDIR}/build"

do_compile() {
    oe_runmake -C ${S}/agent one CROSS=${TARGET_PREFIX} ARCH=target BUILD=${B} CFLAGS="${TOOLCHAIN_OPTIONS} ${HOST_CC_ARCH}" LDFLAGS="${LDFLAGS}"
}

do_install() {
    install -D -m 0755 ${B}/target/flashscope-agent ${D}${bindir}/flashscope-agent
}

# The Makefile strips it: its limit (LIMIT) is of what lies on the board.
# nooelint: oelint.vars.insaneskip
INSANE_SKIP:${PN} += "already-stripped"
