"""Databases on PostgreSQL behind a proxy, which can be absent or hang. Start reading at `Database`."""

import os
import re
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress

import pytest

from support import ENVIRONMENT, free_port

needs_postgresql = pytest.mark.skipif("TARN_TEST_POSTGRES" not in os.environ, reason="needs scripts/with-postgres")


class Database:
    """A database of its own on the test server, reached through a proxy at a fixed port. It exists from the start, but
    nothing listens at the port until `listen`."""

    def __init__(self):
        self.base, _, _ = os.environ["TARN_TEST_POSTGRES"].rpartition("/")
        self.server = ("127.0.0.1", int(re.search(r":(\d+)$", self.base)[1]))
        self.port = free_port()
        self.name = f"proxied_{os.getpid()}_{self.port}"
        self.url = f"{self.base.rpartition(':')[0]}:{self.port}/{self.name}"
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = None
        self.sockets = []
        # The connections whose bytes are not forwarded.
        self.held = set()
        self.sql("postgres", f"create database {self.name} template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8'")

    def sql(self, database: str, text: str) -> str:
        """Runs a statement on the test server itself, and returns its rows."""
        command = ["psql", f"{self.base}/{database}", "-qtA", "-v", "ON_ERROR_STOP=1", "-c", text]
        return subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True, text=True).stdout.strip()

    def listen(self):
        """Makes the database reachable."""
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        """Takes connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self.server)
                self.sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        """Forwards one direction of a connection."""
        with suppress(OSError):
            while data := source.recv(65536):
                self.held.add(source)
                self.flowing.wait()
                self.held.discard(source)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def freeze(self):
        """Makes the server hang: connections stay open, new ones are accepted, and nothing comes back."""
        self.flowing.clear()

    def waiting(self) -> int:
        """How many connections wait for the server that hangs."""
        return len(self.held)

    def thaw(self):
        """Lets the server continue where it was."""
        self.flowing.set()

    def close(self):
        """Removes everything."""
        self.thaw()
        if self.listener:
            with suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.sql("postgres", f"drop database {self.name} with (force)")


@contextmanager
def proxied_database():
    """A database behind a proxy, removed afterwards."""
    database = Database()
    try:
        yield database
    finally:
        database.close()
