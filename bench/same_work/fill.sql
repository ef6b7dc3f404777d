-- What flashscope-sqlite --create does, by Debian's sqlite3: the same table of the same records, which lie in memory.
PRAGMA page_size = 1024;
ATTACH '/tmp/same.db' AS same;
CREATE TABLE contacts(id INTEGER PRIMARY KEY, account INTEGER, source INTEGER, version INTEGER, photo INTEGER, ringtone INTEGER, times_contacted INTEGER, last_contacted INTEGER, starred INTEGER, visible INTEGER, has_phone INTEGER, status INTEGER, name TEXT, phone TEXT, email TEXT, address TEXT, note TEXT);
INSERT INTO main.contacts SELECT * FROM same.contacts ORDER BY id;
