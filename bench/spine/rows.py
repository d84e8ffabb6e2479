"""Rows, inserted into SQLite files while no server runs: the baselines' database, and other tenants of Tarn."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

TENANTS = 1000
ROWS = 100_000
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def baseline(path: Path):
    """The database of both baselines: a thousand tenants with a hundred clusters each."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            pragma journal_mode=wal;
            create table tokens(hash text primary key, user_id int) without rowid;
            create table clusters(id integer primary key, user_id int, name text, status text, created text);
            create index cu on clusters(user_id, id);
            """
        )
        tokens = ((hashlib.sha256(f"token-{n}".encode()).hexdigest(), n) for n in range(TENANTS))
        database.executemany("insert into tokens values(?,?)", tokens)
        rows = ((n, n % TENANTS, f"cluster-{n}", "RUNNING", "2026-01-01T00:00:00Z") for n in range(1, ROWS + 1))
        database.executemany("insert into clusters values(?,?,?,?,?)", rows)
        database.commit()


def other_tenants(data: Path, count: int):
    """Clusters of other tenants in Tarn's database, a thousand for each: copies of its first, under other names."""
    (path,) = (path for path in data.iterdir() if is_database(path))
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma synchronous=off")
        clusters, instances = (row_copier(database, table) for table in ("clusters", "instances"))
        for first in range(0, count, 10_000):
            numbers = range(first, min(first + 10_000, count))
            clusters(other_tenant(number) for number in numbers)
            # Nothing runs behind these rows, so they take no capacity: claims are not measured with them.
            instances({"id": other_tenant_id("i", n), "cluster_id": other_tenant_id("c", n), "holds_capacity": 0} for n in numbers)
            database.commit()
        database.execute("pragma wal_checkpoint(truncate)")


def is_database(path: Path) -> bool:
    """Whether SQLite wrote this file; the server chooses its name."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(15) == b"SQLite format 3"


def other_tenant(number: int) -> dict:
    """The changes that make the copied cluster another tenant's."""
    tenant = number // TENANTS
    user, organization = other_tenant_id("u", tenant), other_tenant_id("o", tenant)
    name = f"stranger-{number}"
    return {"id": other_tenant_id("c", number), "user_id": user, "org_id": organization, "scope": organization, "name": name}


def row_copier(database: sqlite3.Connection, table: str):
    """A function that inserts copies of the table's first row, changed as each given dictionary says."""
    names = [row[1] for row in database.execute(f"pragma table_info({table})")]
    template = dict(zip(names, database.execute(f"select * from {table} limit 1").fetchone(), strict=True))
    marks = ",".join(f":{name}" for name in names)
    text = f"insert into {table}({','.join(names)}) values({marks})"
    return lambda changes: database.executemany(text, (template | change for change in changes))


def other_tenant_id(prefix: str, number: int) -> str:
    """An id in Tarn's format that no generated one can equal: those of other tenants begin with zz."""
    digits = ""
    for _ in range(10):
        number, digit = divmod(number, 32)
        digits = ALPHABET[digit] + digits
    return f"{prefix}-zz{digits}"
