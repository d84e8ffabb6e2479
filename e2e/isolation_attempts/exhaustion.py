"""Exhaustion of resources."""


def spawn_processes(number, work):
    """Starts processes of several users, so that each has few; they end with this one. Refused unless all did their
    work."""
    held, other = os.pipe()
    told, tell = os.pipe()
    os.setpgid(0, 0)
    try:
        for each in range(number):
            if os.fork() == 0:
                os.close(other)
                os.setuid(2000 + each % 8)
                try:
                    work(each)
                    os.write(tell, b"x")
                    os.read(held, 1)
                except BaseException:
                    os.write(tell, b"-")
                finally:
                    os._exit(0)
        os.close(tell)
        said = b""
        while len(said) < number and b"-" not in said and select.select([told], [], [], 8)[0] and (more := os.read(told, 4096)):
            said += more
        if said != b"x" * number:
            refused(f"only {said.count(b'x')} of {number} got what they wanted")
    finally:
        os.close(other)


def too_many_processes():
    """Starts more than an instance of this size may have. Threads count as well and need less memory, which is
    limited, too."""
    threading.stack_size(64 << 10)

    def work(_):
        for _ in range(TARGETS["too_many_processes"] // 8):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

    spawn_processes(8, work)


def too_many_pipes():
    """Each pipe takes a little memory of the kernel."""
    spawn_processes(TARGETS["too_many_pipes"] // 4000, lambda _: [os.pipe() for _ in range(4000)])


def too_much_in_sockets():
    """Data that was sent and is never read stays in the kernel."""
    held, size, grown = [], 0, 0
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        # Without a limit this takes some seconds; at the limit a connection gets a few kilobytes.
        last = time.monotonic() + 3
        while time.monotonic() < last and len(held) < 800:
            one = socket.create_connection(listener.getsockname())
            held += [one, listener.accept()[0]]
            one.setblocking(False)
            end = time.monotonic() + 0.1
            while time.monotonic() < end and size < TARGETS["too_much_in_sockets"]:
                try:
                    size += one.send(b"x" * (1 << 20))
                except BlockingIOError:
                    select.select([], [one], [], 0.02)
            if size >= grown + (8 << 20):
                grown, last = size, time.monotonic() + 3
            if size >= TARGETS["too_much_in_sockets"]:
                return
    refused(f"no more than {size >> 20} MiB")


def take_memory_by_rings_of_frames():
    """Takes 4 MiB that the kernel charges to no control group."""
    ring = ctypes.create_string_buffer(struct.pack("<IIII", 1 << 20, 4, 1 << 11, (4 << 20) >> 11))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        call("setsockopt", raw.fileno(), 263, 5, ring, 16)


def too_many_terminals():
    held = []
    for _ in range(TARGETS["too_many_terminals"]):
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))


def too_much_memory():
    size = TARGETS["too_much_memory"]
    memory = bytearray(1 << 20)
    pieces = []
    for _ in range(size >> 20):
        pieces.append(bytearray(memory))
        pieces[-1][::4096] = b"x" * 256


def fill(directory, size):
    path = f"{directory}/too-much-{os.getpid()}"
    piece = b"x" * (1 << 20)
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(size >> 20):
                file.write(piece)
    finally:
        os.unlink(path)


def too_much_in_dev_shm():
    fill("/dev/shm", TARGETS["too_much_in_dev_shm"])


def too_much_in_run():
    fill("/run", TARGETS["too_much_in_run"])


def too_much_on_the_disk():
    """Allocates the space without writing to it, and frees it."""
    path = f"/var/tmp/too-much-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, TARGETS["too_much_on_the_disk"])
    finally:
        os.close(descriptor)
        os.unlink(path)


def more_inodes_than_the_disk_has_room_for():
    seen = os.statvfs("/var/tmp")
    if seen.f_files * 256 <= TARGETS["too_much_on_the_disk"]:
        refused(f"there are {seen.f_files} in all")


def more_processor_time():
    """Uses more than the limit, with more busy processes than processors, so that a busy host gives them
    their share. Repeated, because the host may be busy at first."""
    for _ in range(TARGETS["processor_tries"]):
        children = []
        began = time.monotonic()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                while time.monotonic() < began + 0.5:
                    pass
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        share = spent / (time.monotonic() - began)
        if share >= TARGETS["too_many_cpus"]:
            return
    refused(f"it had {share:.2f} processors")


def use_up_file_watchers():
    """Takes one."""
    check_call(libc.inotify_init1(0))


def use_up_pending_signals():
    """Queues one that stays pending, because it is blocked."""
    check_call(libc.sigqueue(os.getpid(), signal.SIGRTMIN + 5, ctypes.c_void_p(0)))


def use_up_message_queues():
    """Creates one whose name is gone at once; it exists as long as this process."""
    name = b"/tarn-%d" % os.getpid()
    check_call(libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None))
    libc.mq_unlink(name)


def check_call(answer):
    """Raises the error of a function of the C library."""
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def take_counts(names):
    """Takes as many of each as there are, and keeps them until its input ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 5])
    for name in names:
        try:
            for _ in range(2_000_000):
                globals()[name]()
        except OSError:
            continue
    print("all are taken", flush=True)
    sys.stdin.read()


def probe_counts(names):
    """Takes one of each, and prints the errors."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 5])
    said = {}
    for name in names:
        try:
            said[name] = globals()[name]()
        except OSError as error:
            said[name] = str(error)
    print(json.dumps(said))
