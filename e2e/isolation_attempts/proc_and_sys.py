"""Files of /proc and /sys."""


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
