"""What queries.replay is recorded of: python3 queries.py make FILE; strace … python3 queries.py ask FILE SECONDS (see ORIGIN)."""

import random
import sqlite3
import sys
import time


def make(path):
    rng = random.Random(1)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE track (id INTEGER PRIMARY KEY, body BLOB)")
    db.executemany("INSERT INTO track VALUES (?, ?)", ((i, rng.randbytes(400)) for i in range(1, 24001)))
    db.commit()


def ask(path, seconds):
    rng = random.Random(32)
    db = sqlite3.connect(path)
    db.execute("PRAGMA cache_size = 20")
    begin = time.monotonic()
    while time.monotonic() - begin < float(seconds):
        db.execute("SELECT length(body) FROM track WHERE id = ?", (rng.randrange(1, 24001),)).fetchone()
        time.sleep(rng.uniform(0.05, 0.15))


if __name__ == "__main__":
    {"make": make, "ask": ask}[sys.argv[1]](*sys.argv[2:])
