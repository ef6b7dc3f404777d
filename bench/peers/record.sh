# On a board: runs a recorder until stop.sh ends it. usage: record.sh COMMAND...
rm -f /tmp/ended
mkfifo /tmp/ended
"$@" > /tmp/recorder.log 2>&1 &
echo $! > /tmp/recorder
wait $!
echo $? > /tmp/ended
