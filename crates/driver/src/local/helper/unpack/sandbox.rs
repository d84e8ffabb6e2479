//! Where a layer is unpacked: its directory is the whole world there. No other file, no network and no other process can be
//! named, the ids are nobody's on the machine, and the kernel takes only the calls that unpacking needs.

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

/// What is needed to give files to whom they belong, and to write into directories that nobody may write into.
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETFCAP);

/// As much memory of its own as unpacking may have.
const MEMORY: u64 = 64 << 20;

/// As many files may be open at once.
const FILES: u64 = 32;

/// The calls that unpacking needs.
const CALLS: &str = "\
    brk clock_gettime close exit exit_group fallocate fchmod fchmodat fchown fchownat fcntl fgetxattr fremovexattr fsetxattr \
    fstat fsync ftruncate futex getdents64 getrandom gettid getpid linkat lseek madvise mkdirat mknodat mmap mprotect mremap \
    munmap newfstatat openat openat2 pwrite64 read readlinkat readv renameat2 rt_sigaction rt_sigprocmask rt_sigreturn \
    sched_getaffinity sched_yield sigaltstack statx symlinkat sync_file_range tgkill unlinkat utimensat write writev";

/// Leaves everything behind but the layer's directory, whose ids are those of the user namespace from now on. The mounts still
/// belong to the machine: whoever is in that namespace cannot change them.
pub(super) fn leave_the_machine(directory: &Path, namespaces: &Namespaces) -> io::Result<()> {
    kernel::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let tree = open_tree(CWD, directory, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let plain = linux::MOUNT_ATTR_NODEV | linux::MOUNT_ATTR_NOSUID | linux::MOUNT_ATTR_NOEXEC;
    mount_calls::set_mount_attributes(&tree, plain, Some(&namespaces.user))?;
    move_mount(&tree, "", CWD, directory, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    std::env::set_current_dir(directory)?;
    // Both at once: the old root lies over the new one until it is taken away.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Gives up every right that unpacking does not need.
pub(super) fn enter(namespaces: &Namespaces) -> io::Result<()> {
    use std::os::fd::AsFd;
    move_into_link_name_space(namespaces.network.as_fd(), Some(LinkNameSpaceType::Network))?;
    move_into_link_name_space(namespaces.user.as_fd(), Some(LinkNameSpaceType::User))?;
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    for capability in CapabilitySet::all() - CAPABILITIES {
        // One that this kernel does not know is not had.
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
    filter().map_err(io::Error::other)
}

/// Whatever is not listed is "not permitted".
fn filter() -> Result<(), libseccomp::error::SeccompError> {
    let mut filter = ScmpFilterContext::new(ScmpAction::Errno(libc::EPERM))?;
    for name in CALLS.split_whitespace() {
        // Not every architecture has every call.
        if let Ok(call) = ScmpSyscall::from_name(name) {
            filter.add_rule(ScmpAction::Allow, call)?;
        }
    }
    filter.load()
}
