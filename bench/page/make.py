#!/usr/bin/env python3
"""Writes a trace of blktrace, version 7: I/O of 40 programs on one disk, spread over a time.

usage: make.py EVENTS SECONDS OUTPUT
"""
import struct
import sys

events, seconds, output = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
RECORD = struct.Struct("<IIQQIIIIIHH")
MAGIC, DEVICE = 0x65617407, 8 << 20
READ, WRITE, QUEUE, REQUEUE_FS, ISSUE, COMPLETE, NOTIFY = (1 << (16 + bit) for bit in (0, 1, 4, 5, 6, 7, 10))
# Queue, get a request, insert, issue, complete: action, category, nanoseconds after the queueing.
STEPS = [(1, QUEUE, 0), (4, QUEUE, 2_000), (12, QUEUE, 5_000), (7, ISSUE, 40_000), (8, COMPLETE, 240_000)]
requests = events // len(STEPS)
gap = max(int(seconds * 1e9 / requests), 1)

with open(output, "wb", buffering=1 << 20) as out:
    sequence = 1
    for task in range(40):
        name = f"program-{task}".encode().ljust(16, b"\0")
        out.write(RECORD.pack(MAGIC, sequence, 0, 0, 0, NOTIFY, 100 + task, 0, 0, 0, 16) + name)
        sequence += 1
    for i in range(requests):
        pid, sector, size = 100 + i % 40, i * 7919 % 90_000_000 * 8, 4096 << (i % 5)
        way = WRITE if i % 3 else READ
        # Requests do not overlap where there is time between them, so that the records are in order of time.
        scale = min(1.0, gap / 250_000)
        for action, category, after in STEPS:
            time = i * gap + int(after * scale)
            out.write(RECORD.pack(MAGIC, sequence, time, sector, size, action | category | way, pid, DEVICE, 0, 0, 0))
            sequence += 1
