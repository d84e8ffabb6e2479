"""Runs inside an instance, as root. It knows nothing of the suite: it is sent there as text and needs only Python.

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


# --- other processes


def bystander():
    """The id of the host process that attempts are made on, if it is visible."""
    pid = TARGETS["bystander"]["pid"]
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        if TARGETS["bystander"]["word"].encode() not in file.read():
            raise OSError(errno.ENOENT, "this is somebody else")
    return pid


def signal_a_process_of_the_host():
    os.kill(bystander(), 0)


def trace_a_process_of_the_host():
    pid = bystander()
    call("ptrace", 16, pid, 0, 0)
    os.waitpid(pid, 0x40000000)
    call("ptrace", 17, pid, 0, 0)


def read_memory_of_a_process_of_the_host():
    """Reads the memory map, and the memory at an unmapped address with a system call."""
    pid = bystander()
    read_first_byte(f"/proc/{pid}/maps")
    place = ctypes.create_string_buffer(struct.pack("<QQ", 8, 8))
    expect_error([errno.EFAULT], "process_vm_readv", pid, place, 1, place, 1, 0)


def see_namespaces_of_the_host():
    """Only the instance's own namespaces are visible inside."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/mnt") == TARGETS["host_mounts"]:
                return
        except OSError:
            continue
    refused("there are none of the host")


def enter_a_namespace():
    call("setns", os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)


# --- devices and disks


def open_fuse():
    check_open("/dev/fuse", os.O_RDWR)


def open_host_devices():
    for name in ("mem", "kmem", "port", "kmsg", "kvm", "loop-control", "loop0", "vda", "sda", "nvme0n1", "btrfs-control", "net/tun",
                 "mapper/control", "vfio/vfio", "hwrng", "cpu_dma_latency", "snapshot", "uinput", "vhost-net"):  # fmt: skip
        try:
            check_open(f"/dev/{name}")
        except OSError:
            continue
        return
    refused("none of them can be opened")


def make_device(kind, major, minor):
    path = f"/dev/device-{os.getpid()}"
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    try:
        check_open(path)
    finally:
        os.unlink(path)


def make_a_disk_device():
    """Creates a loop device without a file; every disk device is created and opened like this."""
    make_device(0o060000, 7, 0)


def make_a_memory_device():
    """Creates the device of the memory, the ports or the kernel messages, whichever this kernel has."""
    for minor in (1, 4, 11):
        try:
            return make_device(0o020000, 1, minor)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
    raise OSError(errno.ENXIO, "this kernel has none of them")


def attach_a_loop_device():
    try:
        check_open("/dev/loop-control", os.O_RDWR)
    except OSError:
        make_device(0o020000, 10, 237)


def make_a_tunnel():
    try:
        check_open("/dev/net/tun", os.O_RDWR)
    except OSError:
        make_device(0o020000, 10, 200)


def read_kernel_messages():
    """Reads the size of the kernel log, which needs the right to read it."""
    try:
        check_open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        call("syslog", 10, 0, 0)


def read_kcore():
    read_first_byte("/proc/kcore")


def read_counts_of_physical_pages():
    check_open("/proc/kpagecount")


def read_the_map_of_memory():
    read_first_byte("/proc/slabinfo" if os.path.exists("/proc/slabinfo") else "/proc/vmallocinfo")


# --- /proc and /sys


def read_interrupts():
    read_first_byte("/proc/interrupts")


def read_the_command_line_of_the_kernel():
    read_first_byte("/proc/cmdline")


def read_partitions():
    read_first_byte("/proc/partitions")


def read_counters_of_memory():
    read_first_byte("/proc/vmstat")


def read_counters_of_filesystems():
    read_first_byte("/proc/fs/xfs/stat")


def list_filesystems_of_others():
    """Their names are those of devices, and their counters show what others do."""
    if not os.listdir("/sys/fs/xfs"):
        refused("there are none")


def read_counters_of_heat():
    """Any processor may have them."""
    directory = "/sys/devices/system/cpu"
    counters = (f"{directory}/{name}/thermal_throttle" for name in os.listdir(directory))
    if not any(os.path.isdir(path) and os.listdir(path) for path in counters):
        refused("no processor shows any")


def write_a_setting_of_the_network():
    check_open("/proc/sys/net/ipv4/conf/all/forwarding", os.O_WRONLY)


def write_core_pattern():
    check_open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


def write_modprobe_path():
    check_open("/proc/sys/kernel/modprobe" if os.path.exists("/proc/sys/kernel/modprobe") else "/proc/sys/kernel/panic", os.O_WRONLY)


def write_sysrq():
    path = "/proc/sysrq-trigger"
    check_open(path if os.path.exists(path) else "/proc/sys/kernel/panic_on_oops", os.O_WRONLY)


def temporary_directory():
    path = f"/tmp/place-{os.getpid()}"
    os.makedirs(path, exist_ok=True)
    return path


def check_open_in_mount(kind, options, files):
    """Mounts a filesystem and opens one of its files for writing."""
    path = temporary_directory()
    call("mount", b"none", path.encode(), kind, 0, options)
    try:
        for name in files:
            if os.path.exists(f"{path}/{name}"):
                return check_open(f"{path}/{name}", os.O_WRONLY)
        refused(f"{kind.decode()} is without {files}")
    finally:
        call("umount2", path.encode(), 2)


def write_binfmt_misc():
    check_open_in_mount(b"binfmt_misc", 0, ["register"])


def write_uevent_helper():
    path = "/sys/kernel/uevent_helper"
    check_open(path if os.path.exists(path) else "/sys/kernel/mm/transparent_hugepage/enabled", os.O_WRONLY)


def write_to_sys():
    """Tries every file."""
    for top, directories, names in os.walk("/sys"):
        for name in names:
            try:
                check_open(os.path.join(top, name), os.O_WRONLY)
            except OSError:
                continue
            return
        if top.count("/") > 5:
            directories[:] = []
    refused("no file of it can be opened for writing")


def control_groups(files):
    """Opens a file of the control groups, in whichever version the kernel has."""
    try:
        return check_open_in_mount(b"cgroup", b"memory", files)
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.EINVAL, errno.EBUSY):
            raise
    check_open_in_mount(b"cgroup2", 0, files)


def write_release_agent():
    """Only the root control group has this file."""
    control_groups(["release_agent"])


def write_to_a_control_group():
    control_groups(["notify_on_release", "cgroup.procs"])


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
    path = temporary_directory().encode()
    mount(b"none", path, b"tmpfs")
    call("umount2", path, 2)


def mount_by_the_new_calls():
    context = call("fsopen", b"tmpfs", 0)
    os.close(context)


def clone_a_mount():
    os.close(call("open_tree", AT_FDCWD, b"/tmp", 1))


def change_attributes_of_a_mount():
    """Changes nothing, on the mount of /dev/shm."""
    nothing = ctypes.create_string_buffer(struct.pack("<4Q", 0, 0, 0, 0))
    call("mount_setattr", AT_FDCWD, b"/dev/shm", 0, nothing, 32)


def remount_proc_sys_writable():
    mount(b"none", b"/proc/sys", b"none", 32 | 4096 | 0xE)


def make_a_mount_shared():
    call("mount", b"none", b"/dev/shm", b"none", 1 << 20, 0)


def unmount_a_mask():
    call("umount2", b"/proc/interrupts", 0)


def change_the_root():
    """Changes the root to itself: a permitted caller gets EBUSY or EINVAL."""
    expect_error([errno.EBUSY, errno.EINVAL], "pivot_root", b"/", b"/tmp")


def open_a_file_by_handle():
    """Opens the root of the host filesystem that contains the guest's program."""
    handle = ctypes.create_string_buffer(bytes.fromhex(TARGETS["handle"]))
    os.close(call("open_by_handle_at", os.open(TARGETS["shown"], os.O_RDONLY), handle, os.O_RDONLY))


# --- the kernel


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


# --- the network


def run_command(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is missing") from error
    if done.returncode:
        refused(done.stderr.strip())


def change_the_own_address():
    run_command("ip", "address", "add", "10.99.99.99/32", "dev", "eth0")
    run_command("ip", "address", "del", "10.99.99.99/32", "dev", "eth0")


def change_the_own_hardware_address():
    mine = open("/sys/class/net/eth0/address").read().strip()
    run_command("ip", "link", "set", "eth0", "address", mine)


def load_firewall_rules():
    """Sends an empty batch to the kernel's netlink socket: it changes nothing, and needs the right to change rules."""
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
    """Connects to all addresses at once."""
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
    connect(TARGETS["metadata"], 80)


def reach_a_private_network():
    connect(TARGETS["office"], 80)


def hear_another_cluster():
    """Captures all traffic while the nodes of another cluster send; the instance's own traffic must be captured."""
    heard, own = 0, False
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.setblocking(False)
        ready, end = time.monotonic() + 1.0, time.monotonic() + 30.0
        while time.monotonic() < ready or not own:
            if time.monotonic() > end:
                raise RuntimeError("not even the own traffic is heard")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"tarn-own", (TARGETS["second"]["address"], 9))
            while select.select([everything], [], [], 0.05)[0]:
                frame = everything.recv(2048)
                own = own or b"tarn-own" in frame
                heard += b"tarn-neighbours" in frame
                if heard and own:
                    return
    refused("nothing of it was heard")


def frame(name):
    """The frame of an attempt. It always contains the attempt's name."""
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
    """Sends the requested frames and then a valid one."""
    order = json.loads(order)
    TARGETS.update(order["targets"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        for name in order["names"]:
            raw.send(frame(name))
        raw.send(frame("end"))


def listen_for_frames():
    """Prints which attempts arrived, by the names in their frames, until the valid frame arrives."""
    names = [name.encode() for name in frame.__code__.co_consts for name in (name if isinstance(name, tuple) else (name,))
             if isinstance(name, str) and name.isidentifier()]  # fmt: skip
    seen = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.bind(("eth0", 3))
        print("listening", flush=True)
        while True:
            if not select.select([everything], [], [], 60)[0]:
                sys.exit("the valid frame did not arrive")
            content = everything.recv(4096)
            if content.endswith(b"end"):
                break
            seen += [name.decode() for name in names if name in content and name != b"end"]
    print(json.dumps(seen), flush=True)


# --- exhaustion of resources


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


def begin(name):
    """Begins an attempt in its own process. Returns how to wait for it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(180)
        # If memory runs out, the kernel must kill this process.
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        os.write(writer, outcome_of(globals()[name]).encode()[:1000])
        os._exit(0)
    os.close(writer)
    return pid, reader


def outcome(pid, reader):
    """Waits for an attempt and returns its outcome."""
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


def outcome_of(attempt):
    """The outcome of an attempt, with the name of the kernel's error."""
    try:
        attempt()
    except OSError as error:
        return f"refused: {errno.errorcode.get(error.errno, 'words')}: {error}"
    except MemoryError:
        return "refused: ENOMEM"
    except BaseException as error:
        return f"broken: {error!r}"
    return "able"


def main(order):
    """Makes the requested attempts and prints the outcomes. Those that only wait for the network wait together."""
    order = json.loads(order)
    TARGETS.update(order["targets"])
    together = [name for name in order["names"] if name.startswith(("reach_", "hear_"))]
    begun = {name: begin(name) for name in together}
    outcomes = {name: outcome(*waiting) for name, waiting in begun.items()}
    outcomes |= {name: outcome(*begin(name)) for name in order["names"] if name not in together}
    print(json.dumps(outcomes))
