# Reads a database of `bench sqlite` with Python's own SQLite: CRC-32 of the first 1, 20 and 1000 records, integers as 64 bits,
# little-endian, then the texts (agent/sqlite/sqlite.c).
import sqlite3, struct, sys, zlib

rows = sqlite3.connect(sys.argv[1]).execute("SELECT * FROM contacts ORDER BY id").fetchall()
assert len(rows) == 1000 and all(len(row) == 17 for row in rows)
for count in (1, 20, 1000):
    crc = 0
    for row in rows[:count]:
        crc = zlib.crc32(struct.pack("<12q", *row[:12]), crc)
        for text in row[12:]:
            assert len(text) == 64
            crc = zlib.crc32(text.encode(), crc)
    print(crc)
