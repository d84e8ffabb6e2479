"""Namespaces and mounts."""

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
