"""Runs inside an instance, as root. It knows nothing of the suite: it is sent there as text, with the other files of this
folder after it, and needs only Python.

An attempt that returns has succeeded; one that is refused raises an `OSError` or is killed. Each runs in its own
process. No attempt changes the host even where nothing refuses it: what could do so is only opened and closed.
"""

import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
O_PATH = getattr(os, "O_PATH", 0o10000000)
AT_FDCWD = -100
# The numbers of system calls on x86-64.
CALLS = {
    "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169, "sethostname": 170, "init_module": 175, "pivot_root": 155,
    "ptrace": 101, "unshare": 272, "setns": 308, "clock_settime": 227, "add_key": 248, "keyctl": 250, "bpf": 321,
    "perf_event_open": 298, "open_by_handle_at": 304, "finit_module": 313, "process_vm_readv": 310, "kexec_load": 246,
    "userfaultfd": 323, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432,
    "clone3": 435, "mount_setattr": 442, "mknod": 133, "syslog": 103, "settimeofday": 164, "setsockopt": 54, "socket": 41,
}  # fmt: skip
TARGETS = {}


def call(name, *arguments):
    """Makes a system call and raises its error as an `OSError`."""
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(CALLS[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return answer


def expect_error(codes, name, *arguments):
    """Makes a system call with invalid arguments. A permitted caller gets one of these error codes, which counts as
    success."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno not in codes:
            raise


def check_open(path, flags=os.O_RDONLY):
    """Opens a file and closes it; nothing is read or written."""
    os.close(os.open(path, flags))


def read_first_byte(path):
    """Reads one byte; an empty file counts as hidden."""
    with open(path, "rb", buffering=0) as file:
        if not file.read(1):
            raise OSError(errno.ENODATA, "empty", path)


def refused(why):
    """Raises a refusal that has no error code of the kernel."""
    raise OSError(why)
