#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The sanitized flashscope-sqlite on this host: sizes, repeatable checksums, and every way it refuses.
#   sqlite.sh DIR     DIR holds flashscope-sqlite
set -u
sqlite=$(cd "$1" && pwd)/flashscope-sqlite
work=$(mktemp -d)
cd "$work" || exit 1
failed=0
checks=0
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

note() { failed=$((failed + 1)); echo "sqlite.sh: $*" >&2; }
check() { # WHAT CONDITION…
	checks=$((checks + 1))
	what=$1; shift
	"$@" || note "$what"
}
run() { # EXIT-CODE WORDS ARGUMENTS…: its exit code, no sanitizer report; where it fails one line on stderr with WORDS
	want=$1 words=$2; shift 2
	"$sqlite" "$@" >out 2>err
	got=$?
	checks=$((checks + 1))
	[ "$got" = "$want" ] || note "$*: exit $got, not $want: $(head -c 300 err)"
	if grep -q 'Sanitizer\|runtime error' err; then note "$*: $(head -c 2000 err)"; fi
	if [ "$want" != 0 ]; then
		[ "$(wc -l <err)" -eq 1 ] && [ ! -s out ] || note "$*: not one line of error: $(head -c 500 err)"
		grep -q "^flashscope-agent: .*$words" err || note "$*: not '$words': $(head -c 300 err)"
	fi
}
checksums() { grep -o '"checksum":[0-9]*' out; }

# The paper's sizes, 518 KB and 1 MB, come from pages of 1024 bytes.
run 0 '' --file small --create --selects 1,7,1000 --pattern sequential,random
check "six runs" [ "$(checksums | wc -l)" = 6 ]
check "518 KB" grep -q '"size_bytes":518144,"page_bytes":1024,' out
checksums >first
run 0 '' --file large --create --text 128 --selects 3
check "1 MB" grep -q '"size_bytes":1035264,' out
# What is selected is a function of the seed, whatever the pages and however it was written.
run 0 '' --file other --create --page-size 4096 --batch 10 --selects 1,7,1000 --pattern sequential,random --readahead fadvise-random
checksums >second
check "equal checksums" cmp -s first second
run 0 '' --file third --create --seed 2 --selects 7
check "another seed, another checksum" [ "$(checksums)" != "$(sed -n 2p first)" ]
check "nothing beside the databases" [ "$(ls | tr '\n' ' ')" = "err first large other out second small third " ]

run 2 '--file PATH is missing' --selects 1
run 2 '--selects N,… is missing' --file small
run 2 'numbers from 1 to 1000' --file small --selects 1001
run 2 'numbers from 1 to 1000' --file small --selects 1,0
run 2 'numbers from 1 to 1000' --file small --selects 1,,2
run 2 '--page-size 1000' --file small --selects 1 --page-size 1000
run 2 'not to be 0' --file small --selects 1 --text 0
run 2 '--pattern zigzag' --file small --selects 1 --pattern zigzag
run 2 '--readahead much' --file small --selects 1 --readahead much
run 1 'No such file or directory; --create makes it' --file none --selects 1
run 1 'not a regular file' --file . --selects 1
run 1 'create: No such file or directory; name a file' --file none/db --create --selects 1
run 1 'no record 1001' --file small --records 2000 --selects 2000
run 1 'record 1 is not the one that --seed 3' --file small --seed 3 --selects 1
run 1 'record 1 is not the one' --file large --selects 1

# Damage: a file that is no database, one cut short, one with a hole, one with other bytes in a page.
echo nonsense >bad
run 1 'not a database; ' --file bad --selects 1
head -c 100000 small >bad
run 1 'damaged: remove it' --file bad --selects 1000
{ head -c 40960 small; head -c 40960 /dev/zero; tail -c +81921 small; } >bad
run 1 'damaged: remove it' --file bad --selects 1000
{ head -c 300000 small; head -c 700 /dev/zero; tail -c +300701 small; } >bad
run 1 'damaged: remove it' --file bad --selects 1000 --pattern random
i=0
while [ $i -lt 40 ]; do # bytes of headers and pages, each in turn: a wrong answer is told, and nothing crashes
	at=$((i * 12953 % 518144))
	{ head -c $at small; printf '\377'; tail -c +$((at + 2)) small; } >bad
	"$sqlite" --file bad --selects 1000 >out 2>err
	got=$?
	checks=$((checks + 1))
	[ $got -le 1 ] || note "byte $at: exit $got: $(head -c 300 err)"
	[ $got = 1 ] || checksums >>survivors
	i=$((i + 1))
done
[ ! -e survivors ] || check "what is answered is right" [ "$(sort -u survivors)" = "$(sed -n 3p first)" ]

mkdir full
if mount -t tmpfs -o size=300k none full 2>/dev/null; then
	run 1 'no space left on its file system; a larger partition' --file full/db --create --selects 1
	check "nothing is left of it" [ -z "$(ls full)" ]
	umount full
else
	echo "sqlite.sh: full file system NOT tested: tmpfs cannot be mounted here"
fi

echo "sqlite.sh: $checks checks, $failed failed"
cd / && rm -rf "$work"
[ "$failed" = 0 ]
