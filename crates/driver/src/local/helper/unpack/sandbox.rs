//! The sandbox in which a layer is unpacked: it contains nothing but the layer's directory. No other file, network or
//! process can be reached, the ids belong to no user of the host, and the kernel accepts only the calls that unpacking
//! needs.

use std::io;
use std::path::Path;

use libcontainer::syscall::linux;
use libseccomp::{ScmpAction, ScmpFilterContext, ScmpSyscall};
use rustix::fs::{CWD, Gid, Mode, Uid};
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{Resource, Rlimit, Signal, pivot_root, set_parent_process_death_signal, setrlimit, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags, move_into_link_name_space,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::super::namespaces::Namespaces;
use crate::local::helper::kernel;
use crate::local::helper::mount_calls;

/// What is needed to set owners, and to write into directories without write permission.
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETFCAP);

/// The memory limit.
const MEMORY: u64 = 64 << 20;

/// The maximum number of open files.
const FILES: u64 = 32;

/// The system calls that unpacking needs.
const CALLS: &str = "\
    brk clock_gettime close exit exit_group fallocate fchmod fchmodat fchown fchownat fcntl fgetxattr fremovexattr fsetxattr \
    fstat fsync ftruncate futex getdents64 getrandom gettid getpid linkat lseek madvise mkdirat mknodat mmap mprotect mremap \
    munmap newfstatat openat openat2 pwrite64 read readlinkat readv renameat2 rt_sigaction rt_sigprocmask rt_sigreturn \
    sched_getaffinity sched_yield sigaltstack statx symlinkat sync_file_range tgkill unlinkat utimensat write writev";

/// Leaves everything behind except the layer's directory, whose ids are mapped by the user namespace. The mounts still
/// belong to the host: a process in that namespace cannot change them.
pub(super) fn isolate_mounts(directory: &Path, namespaces: &Namespaces) -> io::Result<()> {
    kernel::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let tree = open_tree(CWD, directory, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let plain = linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_NOSUID | linux::MOUNT_ATTR_NOEXEC;
    mount_calls::set_mount_attributes(&tree, plain, Some(&namespaces.user))?;
    move_mount(&tree, "", CWD, directory, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    std::env::set_current_dir(directory)?;
    // Both arguments are the same: the old root is stacked over the new one until it is unmounted.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Drops every privilege that unpacking does not need.
pub(super) fn drop_privileges(namespaces: &Namespaces) -> io::Result<()> {
    use std::os::fd::AsFd;
    move_into_link_name_space(namespaces.network.as_fd(), Some(LinkNameSpaceType::Network))?;
    move_into_link_name_space(namespaces.user.as_fd(), Some(LinkNameSpaceType::User))?;
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    for capability in CapabilitySet::all() - CAPABILITIES {
        // A capability that this kernel does not know is not held either.
        let _unknown = remove_capability_from_bounding_set(capability);
    }
    let (effective, permitted, inheritable) = (CAPABILITIES, CAPABILITIES, CapabilitySet::empty());
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    umask(Mode::empty());
    let exactly = |most| Rlimit { current: Some(most), maximum: Some(most) };
    for (resource, most) in [(Resource::Data, MEMORY), (Resource::Nofile, FILES), (Resource::Core, 0)] {
        setrlimit(resource, exactly(most))?;
    }
    set_no_new_privs(true)?;
    load_syscall_filter().map_err(io::Error::other)
}

/// All other calls fail with "not permitted".
fn load_syscall_filter() -> Result<(), libseccomp::error::SeccompError> {
    let mut filter = ScmpFilterContext::new(ScmpAction::Errno(libc::EPERM))?;
    for name in CALLS.split_whitespace() {
        // Not every architecture has every call.
        if let Ok(call) = ScmpSyscall::from_name(name) {
            filter.add_rule(ScmpAction::Allow, call)?;
        }
    }
    filter.load()
}
