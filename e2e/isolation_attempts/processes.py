"""Other processes."""


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
