#!/bin/sh
# Of each event of tracefs' `trace` its probe and its page: the whole text is more than a step keeps.
sed -n 's/^.* \([a-z_]*\): .*page=\([0-9]*\)$/\1 \2/p' /sys/kernel/tracing/trace
