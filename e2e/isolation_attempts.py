"""What runs inside of an instance, as root. Knows nothing of the suite: it is sent there as a text, and needs only Python.

An attempt that returns was able to do what it tried; one that is refused raises an `OSError`, or is killed. Each runs in a process
of its own. Nothing here changes anything of the machine even where nothing refuses it: what could is only opened, and closed.
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
    "clone3": 435, "mount_setattr": 442, "mknod": 133, "syslog": 103,
}  # fmt: skip
TARGETS = {}


def call(name, *arguments):
    """A system call, with its error as Python has errors."""
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(CALLS[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return answer


def heard(code, name, *arguments):
    """A system call with nonsense, to which the kernel says so by this code, but only to those who may make it."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno != code:
            raise


def opened(path, flags=os.O_RDONLY):
    """Whether a file can be opened; nothing is read or written."""
    os.close(os.open(path, flags))


def first_byte(path):
    """Reads one byte; an empty file gives none and counts as hidden."""
    with open(path, "rb", buffering=0) as file:
        if not file.read(1):
            raise OSError(errno.ENODATA, "empty", path)


def refused(why):
    raise OSError(errno.EPERM, why)


# --- other processes


def signal_every_process():
    for pid in TARGETS["host_pids"]:
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        if os.path.exists(f"/proc/{pid}/cmdline"):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if TARGETS["bystander"].encode() in file.read():
                    return
    refused("none of them is there")


def trace_a_process_of_the_host():
    for pid in TARGETS["host_pids"]:
        if not os.path.exists(f"/proc/{pid}"):
            continue
        try:
            call("ptrace", 16, pid, 0, 0)
        except OSError:
            continue
        call("ptrace", 17, pid, 0, 0)
        if TARGETS["bystander"].encode() in open(f"/proc/{pid}/cmdline", "rb").read():
            return
    refused("none of them is there")


def read_memory_of_a_process_of_the_host():
    first_byte(f"/proc/{TARGETS['host_pids'][0]}/maps")


def enter_namespaces_of_pid_1_of_the_host():
    """All namespaces that can be named from inside are the own ones; what is not may not be entered."""
    for kind in ("mnt", "net", "user", "pid"):
        descriptor = os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)
        if os.readlink(f"/proc/1/ns/{kind}") == TARGETS["host_namespaces"][kind]:
            return
        os.close(descriptor)
    call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)


# --- devices and disks


def open_fuse():
    opened("/dev/fuse", os.O_RDWR)


def open_host_devices():
    for name in ("mem", "kmem", "port", "kmsg", "kvm", "loop-control", "loop0", "vda", "sda", "nvme0n1", "btrfs-control", "net/tun",
                 "mapper/control", "vfio/vfio", "hwrng", "cpu_dma_latency", "snapshot", "uinput", "vhost-net"):  # fmt: skip
        try:
            opened(f"/dev/{name}")
        except OSError:
            continue
        return
    refused("none of them can be opened")


def make_device(kind, major, minor):
    path = f"/tmp/device-{os.getpid()}"
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    try:
        opened(path)
    finally:
        os.unlink(path)


def make_a_disk_device():
    make_device(0o060000, *TARGETS["disk"])


def make_a_memory_device():
    make_device(0o020000, 1, 1)


def attach_a_loop_device():
    try:
        opened("/dev/loop-control", os.O_RDWR)
    except OSError:
        make_device(0o020000, 10, 237)


def make_a_tunnel():
    try:
        opened("/dev/net/tun", os.O_RDWR)
    except OSError:
        make_device(0o020000, 10, 200)


def read_kernel_messages():
    for attempt in (lambda: first_byte("/proc/kmsg"), lambda: opened("/dev/kmsg")):
        try:
            return attempt()
        except OSError:
            pass
    call("syslog", 3, ctypes.create_string_buffer(64), 64)


def read_kcore():
    first_byte("/proc/kcore")


def read_counts_of_physical_pages():
    opened("/proc/kpagecount")


def read_the_map_of_memory():
    first_byte("/proc/slabinfo" if os.path.exists("/proc/slabinfo") else "/proc/vmallocinfo")


# --- /proc and /sys


def read_interrupts():
    first_byte("/proc/interrupts")


def write_a_setting_of_the_network():
    opened("/proc/sys/net/ipv4/conf/all/forwarding", os.O_WRONLY)


def write_core_pattern():
    opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


def write_modprobe_path():
    opened("/proc/sys/kernel/modprobe" if os.path.exists("/proc/sys/kernel/modprobe") else "/proc/sys/kernel/panic", os.O_WRONLY)


def write_sysrq():
    path = "/proc/sysrq-trigger"
    opened(path if os.path.exists(path) else "/proc/sys/kernel/panic_on_oops", os.O_WRONLY)


def write_binfmt_misc():
    opened("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY)


def write_uevent_helper():
    opened("/sys/kernel/uevent_helper", os.O_WRONLY)


def write_to_sys():
    for top, _, names in os.walk("/sys"):
        for name in names:
            try:
                opened(os.path.join(top, name), os.O_WRONLY)
            except OSError:
                continue
            return
        if top.count("/") > 4:
            break
    refused("no file of it can be opened for writing")


def write_release_agent():
    for top, _, names in os.walk("/sys/fs/cgroup"):
        for name in {"release_agent", "notify_on_release"} & set(names):
            return opened(os.path.join(top, name), os.O_WRONLY)
    refused("there are no control groups inside")


def write_to_a_control_group():
    for top, _, names in os.walk("/sys/fs/cgroup"):
        for name in names:
            try:
                opened(os.path.join(top, name), os.O_WRONLY)
            except OSError:
                continue
            return
    refused("there are no control groups inside")


def protect_oneself_from_the_oom_killer():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")


# --- namespaces and mounts

NEWNS, NEWUSER = 0x20000, 0x10000000


def make_a_user_namespace():
    call("unshare", NEWUSER)


def make_a_user_namespace_by_clone3():
    arguments = ctypes.create_string_buffer(struct.pack("<8Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
    pid = call("clone3", arguments, 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def make_a_mount_namespace():
    call("unshare", NEWNS)


def mount(source, place, kind, flags=0):
    call("mount", source, place, kind, flags, 0)


def mount_tmpfs():
    os.makedirs("/tmp/place", exist_ok=True)
    mount(b"none", b"/tmp/place", b"tmpfs")
    call("umount2", b"/tmp/place", 2)


def mount_by_the_new_calls():
    context = call("fsopen", b"tmpfs", 0)
    os.close(context)


def clone_a_mount():
    os.close(call("open_tree", AT_FDCWD, b"/tmp", 1))


def change_attributes_of_a_mount():
    """Asks for nothing, of the mount of /dev/shm."""
    nothing = ctypes.create_string_buffer(struct.pack("<4Q", 0, 0, 0, 0))
    call("mount_setattr", AT_FDCWD, b"/dev/shm", 0, nothing, 32)


def remount_proc_sys_writable():
    mount(b"none", b"/proc/sys", b"none", 32 | 4096)


def make_a_mount_shared():
    call("mount", b"none", b"/dev/shm", b"none", 1 << 20, 0)


def unmount_a_mask():
    call("umount2", b"/proc/kcore", 0)


def change_the_root():
    call("pivot_root", b"/", b"/tmp")


def open_a_file_by_handle():
    """The handle of the root of the filesystem below, which is not the instance's own."""
    handle = ctypes.create_string_buffer(struct.pack("<IiQ", 8, 1, 2))
    os.close(call("open_by_handle_at", os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY))


# --- the kernel


def load_a_module():
    """A module that is none: who may load gets another refusal."""
    heard(errno.ENOEXEC, "init_module", ctypes.create_string_buffer(b"no module at all"), 16, b"")


def load_a_kernel():
    """No parts of no architecture: who may load gets another refusal."""
    heard(errno.EINVAL, "kexec_load", 0, 0, 0, 0xFFFF0000)


def reboot():
    """With a wrong word, to which the kernel says so only to those who may."""
    heard(errno.EINVAL, "reboot", 0, 0, 0, 0)


def swap_on_a_file():
    """An empty file, which is no room to swap to."""
    path = f"/tmp/swap-{os.getpid()}"
    open(path, "wb").close()
    try:
        heard(errno.EINVAL, "swapon", path.encode(), 0)
    finally:
        os.unlink(path)


def set_the_clock():
    """To a time that there is none of."""
    heard(errno.EINVAL, "clock_settime", 0, ctypes.create_string_buffer(struct.pack("<qq", -1, -1)))


def set_the_name_of_the_host():
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))


def load_a_bpf_program():
    """A map, which is the least of it."""
    os.close(call("bpf", 0, ctypes.create_string_buffer(struct.pack("<IIIII", 2, 4, 4, 1, 0).ljust(72, b"\0")), 72))


def count_performance_events_of_the_machine():
    event = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 0).ljust(112, b"\0"))
    os.close(call("perf_event_open", event, -1, 0, -1, 0))


def use_io_uring():
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def handle_page_faults():
    """Those of the user only, which anybody may handle."""
    os.close(call("userfaultfd", 1))


def add_a_key():
    call("add_key", b"user", b"tarn-attempt", b"x", 1, -2)


def list_keys_of_others():
    first_byte("/proc/keys")


def read_keys_of_others():
    """One that its owner lets everybody read who knows its number."""
    call("keyctl", 11, TARGETS["key"], ctypes.create_string_buffer(16), 16)


def use_kernel_cryptography():
    socket.socket(38, socket.SOCK_SEQPACKET).close()


def make_a_vsock():
    """The way of virtual machines to the machine around them."""
    socket.socket(40, socket.SOCK_STREAM).close()


# --- the network


def ran(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 127:
        raise RuntimeError(f"{command[0]} is missing")
    if done.returncode:
        refused(done.stderr.strip())


def change_the_own_address():
    ran("ip", "address", "add", "10.99.99.99/32", "dev", "eth0")
    ran("ip", "address", "del", "10.99.99.99/32", "dev", "eth0")


def change_the_own_hardware_address():
    mine = open("/sys/class/net/eth0/address").read().strip()
    ran("ip", "link", "set", "eth0", "address", mine)


def load_firewall_rules():
    """By the kernel's own socket: an empty batch is refused to those who may not, and does nothing."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        edge = lambda kind, flags: struct.pack("<IHHII", 20, kind, flags, 0, 0) + struct.pack(">BBH", 0, 0, 10)  # noqa: E731
        netlink.send(edge(16, 5) + edge(17, 5))
        netlink.settimeout(2)
        try:
            answer = netlink.recv(4096)
        except TimeoutError:
            return
        code = struct.unpack_from("<i", answer, 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code))


def connect(address, port):
    socket.create_connection((address, port), timeout=2).close()


def connect_any(places):
    """Knocks everywhere at once."""
    waiting = []
    for place in places:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(place)
        waiting.append(one)
    end = time.monotonic() + 2
    while waiting and time.monotonic() < end:
        for one in select.select([], waiting, [], 0.1)[1]:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                return
            waiting.remove(one)
    refused("none of them answers")


def reach_another_cluster():
    connect(TARGETS["neighbour"], 22)


def reach_the_gateway():
    connect(TARGETS["gateway"], TARGETS["port"])


def reach_every_address_of_the_host():
    connect_any((address, TARGETS["port"]) for address in TARGETS["addresses"])


def reach_the_metadata_service():
    connect_any((address, 80) for address in ("169.254.169.254", "169.254.170.2"))


def hear_another_cluster():
    """Listens to everything on the cable while somebody speaks in the other cluster; the own traffic is heard."""
    heard = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.settimeout(0.2)
        ready, own = time.monotonic() + 1.0, False
        while time.monotonic() < ready or not own:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"tarn-own", (TARGETS["second"]["address"], 9))
            try:
                frame = everything.recv(2048)
            except TimeoutError:
                continue
            own = own or b"tarn-own" in frame
            heard += b"tarn-neighbours" in frame
    if not heard:
        refused("nothing of it was heard")


def frame(name):
    """The frame of an attempt. Whatever it is, it carries the attempt's name."""
    mine = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
    own, second, gateway = (socket.inet_aton(TARGETS[key]) for key in ("own", "second_address", "gateway"))
    theirs, every = b"\x02\x54" + second, b"\xff" * 6
    other = b"\x02\x54" + gateway
    elsewhere = socket.inet_aton("203.0.113.9")
    note = name.encode()
    return {
        "answer_for_the_gateway": every + mine + struct.pack(">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2) + mine + gateway + theirs + second + note,
        "send_with_another_hardware_address": theirs + other + b"\x08\x00" + datagram(own, second, 9, 9, note),
        "send_with_another_address": theirs + mine + b"\x08\x00" + datagram(elsewhere, second, 9, 9, note),
        "send_into_a_vlan": theirs + mine + b"\x81\x00\x00\x05\x08\x00" + datagram(own, second, 9, 9, note),
        "announce_a_router": b"\x33\x33\0\0\0\x01" + mine + b"\x86\xdd" + announcement(note),
        "answer_as_dhcp": theirs + mine + b"\x08\x00" + datagram(own, second, 67, 68, note),
        "send_an_unknown_protocol": theirs + mine + b"\x88\xb5" + note.ljust(60, b"\0"),
        "end": theirs + mine + b"\x08\x00" + datagram(own, second, 9, 9, note),
    }[name]


def datagram(source, target, source_port, target_port, content):
    udp = struct.pack(">HHHH", source_port, target_port, 8 + len(content), 0) + content
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, source, target)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + head[12:] + udp


def announcement(content):
    body = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + content
    source, target = b"\xfe\x80" + b"\0" * 13 + b"\x01", b"\xff\x02" + b"\0" * 13 + b"\x01"
    return struct.pack(">IHBB", 0x60000000, len(body), 58, 255) + source + target + body


def send_frames(order):
    """Sends the frames that were asked for and then, until told otherwise, an honest one."""
    order = json.loads(order)
    TARGETS.update(order["targets"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        for name in order["names"]:
            raw.send(frame(name))
        raw.send(frame("end"))


def listen_for_frames():
    """Says which attempts arrived, by what they carry, until the honest frame comes."""
    names = [name.encode() for name in frame.__code__.co_consts for name in (name if isinstance(name, tuple) else (name,))
             if isinstance(name, str) and name.isidentifier()]  # fmt: skip
    seen = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.bind(("eth0", 3))
        print("listening", flush=True)
        while True:
            if not select.select([everything], [], [], 60)[0]:
                sys.exit("the honest frame did not come")
            content = everything.recv(4096)
            if content.endswith(b"end"):
                break
            seen += [name.decode() for name in names if name in content and name != b"end"]
    print(json.dumps(seen), flush=True)


# --- too much of everything


def too_many_processes():
    """More than an instance of this size may have; they end with this one."""
    held, other = os.pipe()
    os.setpgid(0, 0)
    try:
        for _ in range(TARGETS["too_many_processes"]):
            if os.fork() == 0:
                os.close(other)
                os.read(held, 1)
                os._exit(0)
    finally:
        os.close(other)


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


def too_many_open_files():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 << 20, 2 << 20))
    except ValueError as error:
        refused(str(error))


def too_much_on_the_disk():
    """Takes the room without writing to it, and gives it back."""
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
    """Twice what it may have, of two processes that do nothing else."""
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                pass
            os._exit(0)
        children.append(pid)
    began = time.monotonic()
    for pid in children:
        os.waitpid(pid, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    share = (used.ru_utime + used.ru_stime) / (time.monotonic() - began)
    if share < TARGETS["too_many_cpus"]:
        refused(f"it had {share:.2f} processors")


def attempt(name):
    """One attempt in a process of its own: what it says is its outcome."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(60)
        # Whoever needs too much memory shall be the one who is killed.
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            globals()[name]()
            outcome = "able"
        except OSError as error:
            outcome = f"refused: {error}"
        except MemoryError as error:
            outcome = f"refused: {error!r}"
        except BaseException as error:
            outcome = f"broken: {error!r}"
        os.write(writer, outcome.encode()[:1000])
        os._exit(0)
    os.close(writer)
    said = b""
    while piece := os.read(reader, 4096):
        said += piece
        if said:
            break
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if not said:
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return "refused: killed" if ended == signal.SIGKILL else f"broken: status {status}"
    return said.decode()


def main(order):
    """Runs what was asked for and prints the outcomes."""
    order = json.loads(order)
    TARGETS.update(order["targets"])
    print(json.dumps({name: attempt(name) for name in order["names"]}))
