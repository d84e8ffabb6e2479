//! Starting an instance: its namespaces, its root filesystem, and the guest as its first process.

mod devices;
mod root_filesystem;
mod seccomp;
mod specification;

use std::error::Error as _;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};

use self::root_filesystem::RootMounts;
use super::namespaces::{Keeper, Namespaces};
use super::order::{BEGIN, Report, ShowLxcfs, Start};
use super::{Described, lxcfs, read_line, send_report, with_context};
use crate::local::host::processes::Process;
use crate::local::instance::observe;

/// The first descriptor that the guest inherits: its control socket. The next one is for its exit marker.
const FIRST_INHERITED: i32 = 3;

/// How many descriptors the guest inherits.
const INHERITED: i32 = 2;

/// The scheduling priority of the guest.
const GUEST_PRIORITY: i32 = -20;

/// Sets up the instance and, when the engine confirms, lets it begin.
pub(super) fn start_instance(order: &Start) -> io::Result<()> {
    let listener = open_control_socket(order)?;
    let exit_marker = observe::create_exit_marker(&order.run, order.id_base)?;
    check_descriptors(&[listener.as_fd(), exit_marker.as_fd()])?;
    let unmade = with_context("the namespaces could not be created");
    let keeper = Keeper::fork(order.namespace_owner()).map_err(&unmade)?;
    // Creating a network namespace takes time in the kernel, so the disk is mounted meanwhile.
    let disk = root_filesystem::mount_disk(order)?;
    let namespaces = keeper.into_namespaces(order.id_base).map_err(&unmade)?;
    send_report(&Report::Namespaces { pid: namespaces.pid })?;
    let mounts = root_filesystem::build_root(order, &namespaces.user, &disk)
        .map_err(with_context("the root filesystem could not be mounted"))?;
    drop(disk);
    let mut container = create_container(order, &mounts, &namespaces)?;
    let pid = container.pid().ok_or_else(|| io::Error::other("the instance has no process"))?.as_raw();
    raise_guest_priority(pid);
    show_lxcfs(order, pid.unsigned_abs());
    send_report(&Report::Created { pid: pid.unsigned_abs() })?;
    // The network is connected by now, and the instance itself is in the namespaces.
    let begun = match read_line() {
        Ok(line) if line.trim_end() == BEGIN => container.start().map_err(|error| library_error(&error)),
        Ok(_) => Err(io::Error::other("the engine cancelled the start")),
        Err(error) => Err(error),
    };
    if let (Err(_), Some(pid)) = (&begun, Pid::from_raw(pid)) {
        let _gone = kill_process(pid, Signal::KILL);
    }
    begun?;
    drop((listener, exit_marker));
    send_report(&Report::Begun)
}

/// Gives the guest the highest priority in its instance, so that it can kill processes when there are too many.
/// Priorities only matter within an instance: between instances their control groups decide. What the guest starts for
/// a user has normal priority; only the supervisors of jobs keep it. This is not a protection: the tenant's `root` may
/// take over the guest, and then has priority in its own instance.
fn raise_guest_priority(guest: i32) {
    // Without the privilege for this an instance is slower to recover and otherwise the same.
    let _ = rustix::process::setpriority_process(Pid::from_raw(guest), GUEST_PRIORITY);
}

/// Lets the instance see its own share of the host. An instance that cannot be shown it sees the whole host, until the
/// driver tries again.
fn show_lxcfs(order: &Start, guest: u32) {
    let Some(lxcfs) = order.lxcfs.clone() else { return };
    if let Ok(Some(process)) = Process::find(guest) {
        let _shown = lxcfs::show_files_in_time(&ShowLxcfs { process, lxcfs: Some(lxcfs) });
    }
}

/// Opens the control socket before the instance exists, so that a caller waits in its queue instead of being refused.
/// Only the descriptor goes inside: there is no path that the instance could replace.
fn open_control_socket(order: &Start) -> io::Result<UnixListener> {
    let path = order.run.join("control.sock");
    let listener = UnixListener::bind(&path).map_err(with_context("the control socket could not be created"))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The guest finds inherited descriptors by number, from 3 on.
fn check_descriptors(inherited: &[BorrowedFd<'_>]) -> io::Result<()> {
    for (number, descriptor) in (FIRST_INHERITED..).zip(inherited) {
        if descriptor.as_raw_fd() != number {
            return Err(io::Error::other(format!("descriptor {number} is in use by something else")));
        }
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    Ok(())
}

fn create_container(order: &Start, mounts: &RootMounts, namespaces: &Namespaces) -> io::Result<Container> {
    let specification = specification::runtime_specification(order, mounts, namespaces);
    fs::write(mounts.bundle.join("config.json"), serde_json::to_vec(&specification)?)?;
    let null = || File::options().read(true).write(true).open("/dev/null");
    let (input, output, errors) = (null()?, null()?, null()?);
    let build = move || -> Result<Container, LibcontainerError> {
        ContainerBuilder::new(order.id.clone(), SyscallType::Linux)
            .with_root_path(mounts.bundle.join("state"))?
            .with_preserved_fds(INHERITED)
            .with_stdin(input)
            .with_stdout(output)
            .with_stderr(errors)
            .as_init(&mounts.bundle)
            .with_systemd(false)
            .build()
    };
    build().map_err(|error| library_error(&error))
}

/// Converts an error of the library with all of its causes. What its own processes report has only a text.
fn library_error(error: &LibcontainerError) -> io::Error {
    let mut described = Described { text: error.to_string(), errno: None };
    let mut cause = error.source();
    while let Some(error) = cause {
        described.text.push_str(&format!(": {error}"));
        described.errno = described.errno.or_else(|| error.downcast_ref::<io::Error>()?.raw_os_error());
        cause = error.source();
    }
    io::Error::other(described)
}
