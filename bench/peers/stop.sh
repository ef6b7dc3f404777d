# On a board: asks the recorder of record.sh to end, and waits until it has written everything.
kill -INT "$(cat /tmp/recorder)"
read -r status < /tmp/ended
cat /tmp/recorder.log >&2
exit "$status"
