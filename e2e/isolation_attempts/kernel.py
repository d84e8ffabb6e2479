"""The kernel."""


def load_a_module():
    """Loads an invalid module: a permitted caller gets another error."""
    expect_error([errno.ENOEXEC], "init_module", ctypes.create_string_buffer(b"no module at all"), 16, b"")


def load_a_kernel():
    """Loads nothing for an unknown architecture: a permitted caller gets another error."""
    expect_error([errno.EINVAL], "kexec_load", 0, 0, 0, 0xFFFF0000)


def reboot():
    """Calls with a wrong magic number: a permitted caller gets EINVAL."""
    expect_error([errno.EINVAL], "reboot", 0, 0, 0, 0)


def swap_on_a_file():
    """Swaps to an empty file, which is too small: a permitted caller gets EINVAL."""
    path = f"/tmp/swap-{os.getpid()}"
    open(path, "wb").close()
    try:
        expect_error([errno.EINVAL], "swapon", path.encode(), 0)
    finally:
        os.unlink(path)


def set_the_clock():
    """Sets an invalid time zone: the kernel checks the permission first."""
    expect_error([errno.EINVAL], "settimeofday", 0, ctypes.create_string_buffer(struct.pack("<ii", 100_000, 0)))


def set_the_name_of_the_host():
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))


def load_a_bpf_program():
    """Creates a map, the least privileged operation."""
    os.close(call("bpf", 0, ctypes.create_string_buffer(struct.pack("<IIIII", 2, 4, 4, 1, 0).ljust(72, b"\0")), 72))


def count_performance_events_of_the_machine():
    event = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 0).ljust(112, b"\0"))
    os.close(call("perf_event_open", event, -1, 0, -1, 0))


def use_io_uring():
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def handle_page_faults():
    """Handles page faults of user space only, which needs no privilege."""
    os.close(call("userfaultfd", 1))


def add_a_key():
    call("add_key", b"user", b"tarn-attempt", b"x", 1, -2)


def list_keys_of_others():
    with open("/proc/keys") as file:
        if TARGETS["key_name"] not in file.read():
            raise OSError(errno.ENOENT, "it is not listed")


def read_keys_of_others():
    """Reads a key whose owner grants everybody the right to read it by its number."""
    call("keyctl", 11, TARGETS["key"], ctypes.create_string_buffer(16), 16)


def make_an_unusual_socket():
    """Creates a socket of any family from the kernel's cryptography on."""
    for family in range(38, 46):
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM):
            try:
                return socket.socket(family, kind).close()
            except OSError as error:
                last = error
    raise last


def make_a_vsock():
    """Creates a socket of virtual machines to their hypervisor."""
    socket.socket(40, socket.SOCK_STREAM).close()


def make_a_raw_socket():
    """Creates a socket for whole packets of any protocol."""
    for family, protocol in ((socket.AF_INET, 1), (socket.AF_INET, 255), (socket.AF_INET6, 58)):
        try:
            return socket.socket(family, socket.SOCK_RAW, protocol).close()
        except OSError as error:
            last = error
    raise last


def make_a_socket_for_frames():
    """Creates one directly, and by the older type that the kernel treats as such."""
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
    except OSError as error:
        try:
            return socket.socket(socket.AF_INET, 10, socket.htons(3)).close()
        except OSError:
            raise error from None


def use_an_unusual_protocol():
    """Tries MPTCP, SCTP, UDP-Lite and DCCP, whichever this kernel has, also with numbers whose upper half is ignored."""
    for kind, protocol in ((1, 262), (1, 132), (5, 132), (2, 136), (6, 33), (1, 1 << 32 | 262)):
        try:
            return os.close(call("socket", socket.AF_INET, kind, protocol))
        except OSError as error:
            last = error
    raise last
