"""Devices and disks."""


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
