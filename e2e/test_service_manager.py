"""What the engine tells a service manager: a socket of the test takes the place of systemd."""

import socket
import time
from contextlib import suppress

from support import WAIT_SECONDS, Server


class Manager:
    """A socket that collects messages, one set of lines for each."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(1)
        self.told = []

    def wait_for(self, *lines: str):
        """Waits for a message with these lines that came after everything seen so far."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                message = self.socket.recv(4096).decode().splitlines()
                self.told.append(message)
                if set(lines) <= set(message):
                    return
        raise AssertionError(f"{lines} was not told, only {self.told}")


def test_service_manager_is_told(tmp_path):
    """The service manager is told that the engine starts, serves, lives and stops."""
    manager = Manager(tmp_path / "notify")
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    with Server(tmp_path / "data", environment=environment) as server:
        manager.wait_for("READY=1", "STATUS=serving")
        assert ["STATUS=starting"] in manager.told, manager.told
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")
        server.stop()
    manager.wait_for("STOPPING=1", "STATUS=stopping")


def test_engine_needs_no_service_manager(tmp_path):
    """A service manager that is gone keeps the engine neither from starting nor from serving."""
    with Server(tmp_path / "data", environment={"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "400000"}) as server:
        server.call("GET", "/me", expect=200)
        server.stop()
