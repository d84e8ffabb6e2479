"""The same stack as the original: FastAPI and SQLite, with the bearer key looked up by its hash.

The settings come from the environment: `DB` is the database file, `SYNC` how durable an insert is.
"""

import hashlib
import os
import sqlite3
import threading

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

DATABASE = os.environ["DB"]
SYNC = os.environ.get("SYNC", "NORMAL")
COLUMNS = ("id", "name", "status", "created")

app = FastAPI()
bearer = HTTPBearer()
local = threading.local()


def connection() -> sqlite3.Connection:
    """One connection for each thread, opened on its first use."""
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(DATABASE, isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=wal", f"synchronous={SYNC}", "busy_timeout=5000"):
            local.connection.execute(f"pragma {setting}")
    return local.connection


def tenant(credentials: HTTPAuthorizationCredentials = Depends(bearer)) -> int:
    """The tenant of the key, or 401."""
    digest = hashlib.sha256(credentials.credentials.encode()).hexdigest()
    row = connection().execute("select user_id from tokens where hash=?", (digest,)).fetchone()
    if not row:
        raise HTTPException(401)
    return row[0]


async def tenant_without_thread(credentials: HTTPAuthorizationCredentials = Depends(bearer)) -> int:
    """The same on the event loop, without a hop to a worker thread."""
    return tenant(credentials)


@app.get("/db/{id}")
def one(id: int, owner: int = Depends(tenant)):
    """One row by its index."""
    query = "select id,name,status,created from clusters where id=? and user_id=?"
    row = connection().execute(query, (id, owner)).fetchone()
    if not row:
        raise HTTPException(404)
    return dict(zip(COLUMNS, row))


@app.get("/list")
def newest(owner: int = Depends(tenant)):
    """The tenant's newest 20 rows."""
    query = "select id,name,status,created from clusters where user_id=? order by id desc limit 20"
    return [dict(zip(COLUMNS, row)) for row in connection().execute(query, (owner,))]


@app.post("/insert")
def insert(owner: int = Depends(tenant)):
    """One row and one commit."""
    query = "insert into clusters(user_id,name,status,created) values(?,'bench','PENDING','2026-01-01')"
    return {"id": connection().execute(query, (owner,)).lastrowid}


@app.get("/a/db/{id}")
async def one_without_thread(id: int, owner: int = Depends(tenant_without_thread)):
    """What a tuned application would do: SQLite on the event loop."""
    return one(id, owner)


@app.get("/a/list")
async def newest_without_thread(owner: int = Depends(tenant_without_thread)):
    """What a tuned application would do: SQLite on the event loop."""
    return newest(owner)
