//! Starting an instance: its namespaces, its root filesystem, and the guest as its first process.

mod devices;
mod disk;
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

use self::root_filesystem::Mounts;
use super::namespaces::{Keeper, Namespaces};
use super::order::{BEGIN, Report, Start};
use super::{at, read_line, say};
use crate::local::last_word;

/// The first descriptor that the guest inherits: its control socket. The next one is for its last word.
const FIRST_INHERITED: i32 = 3;

/// How many descriptors the guest inherits.
const INHERITED: i32 = 2;

/// The priority of who comes first.
const FIRST: i32 = -20;

/// Puts the instance together and, when the engine says so, lets it begin.
pub(super) fn start(order: &Start) -> io::Result<()> {
    let listener = listen(order)?;
    let last_word = last_word::prepare(&order.run, order.id_base)?;
    check_descriptors(&[listener.as_fd(), last_word.as_fd()])?;
    let unmade = at("the namespaces could not be made");
    let keeper = Keeper::begin().map_err(&unmade)?;
    // This takes as long as the kernel needs for a new network, so both are done at the same time.
    let disk = disk::mount(order)?;
    let namespaces = keeper.finish(order.id_base).map_err(&unmade)?;
    say(&Report::Namespaces { pid: namespaces.pid })?;
    let mounts = root_filesystem::build(order, &namespaces.user, &disk)
        .map_err(at("the root filesystem could not be mounted"))?;
    drop(disk);
    let mut container = create(order, &mounts, &namespaces)?;
    let pid = container.pid().ok_or_else(|| io::Error::other("the instance has no process"))?.as_raw();
    put_first(pid);
    say(&Report::Created { pid: pid.unsigned_abs() })?;
    // The network is connected by now, and the instance is in the namespaces by itself.
    let begun = match read_line() {
        Ok(line) if line.trim_end() == BEGIN => container.start().map_err(|error| io::Error::other(chain(&error))),
        Ok(_) => Err(io::Error::other("the engine took the order back")),
        Err(error) => Err(error),
    };
    if let (Err(_), Some(pid)) = (&begun, Pid::from_raw(pid)) {
        let _gone = kill_process(pid, Signal::KILL);
    }
    begun?;
    drop((listener, last_word));
    say(&Report::Begun)
}

/// The guest comes before everybody else in its instance, so that it can end those who are too many. It is compared only with
/// them: between instances their control groups decide. Whatever it starts for a user steps back, and only the supervisors of
/// jobs do not. It keeps nobody out: root inside may take the guest over, and has his own instance first then.
fn put_first(guest: i32) {
    // Where the engine may not, an instance is slower to mend and otherwise the same.
    let _ = rustix::process::setpriority_process(Pid::from_raw(guest), FIRST);
}

/// The control socket listens before the instance exists, so that a caller waits in its queue instead of being refused. Only
/// the descriptor goes inside: there is no path that the instance could replace.
fn listen(order: &Start) -> io::Result<UnixListener> {
    let path = order.run.join("control.sock");
    let listener = UnixListener::bind(&path).map_err(at("the control socket could not be made"))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The guest finds what it inherits by number, from 3 on.
fn check_descriptors(inherited: &[BorrowedFd<'_>]) -> io::Result<()> {
    for (number, descriptor) in (FIRST_INHERITED..).zip(inherited) {
        if descriptor.as_raw_fd() != number {
            return Err(io::Error::other(format!("descriptor {number} is in use by something else")));
        }
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    Ok(())
}

fn create(order: &Start, mounts: &Mounts, namespaces: &Namespaces) -> io::Result<Container> {
    let specification = specification::of(order, mounts, namespaces);
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
    build().map_err(|error| io::Error::other(chain(&error)))
}

/// An error with all of its causes.
fn chain(error: &LibcontainerError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
