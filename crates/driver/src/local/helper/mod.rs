//! The helper: a short-lived process that carries out one order in namespaces other than the host's.
//!
//! libcontainer forks and changes namespaces, and mounting something in an instance does, too. A program with threads
//! must not do that, so the engine starts its own binary again, which ends up in [`main`]. The helper has one thread,
//! knows nothing but its `order`, and leaves nothing behind when it fails or when the engine dies before an instance
//! may begin. Start reading at `start`, then `volumes`; `unpack` is for layers of images, which are not trusted.

pub(in crate::local) mod kernel;
pub(in crate::local) mod lxcfs;
mod mount_calls;
mod namespaces;
pub(in crate::local) mod order;
mod probe;
mod start;
mod unpack;
mod volumes;

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use rustix::io::Errno;

use order::{Order, Refused, Report};

/// The maximum length of a line.
const MAX_LINE: u64 = 1 << 20;

/// Why an order was not carried out.
enum Failure {
    /// A volume is in a state that the engine must report.
    Refused(Refused),
    /// A layer cannot be unpacked; the reason is for the owner.
    Unfit(String),
    /// A layer is larger than the available space.
    Full,
    Failed(io::Error),
}

impl Failure {
    fn report(self) -> Report {
        match self {
            Failure::Refused(refused) => Report::Refused(refused),
            Failure::Unfit(reason) => Report::Unfit { reason },
            Failure::Full => Report::Full,
            Failure::Failed(error) => Report::Failed { errno: errno_of(&error), reason: error.to_string() },
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Failed(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Failure::Failed(error.into())
    }
}

/// Runs the helper: the order comes on the standard input, reports go to the standard output.
pub fn main() -> ExitCode {
    let Err(failure) = carry_out_order() else { return ExitCode::SUCCESS };
    // The engine may be gone, and then the report is lost.
    let _heard = send_report(&failure.report());
    ExitCode::FAILURE
}

fn carry_out_order() -> Result<(), Failure> {
    kernel::close_inherited()?;
    match serde_json::from_str(&read_line()?).map_err(io::Error::from)? {
        Order::Start(order) => return Ok(start::start_instance(&order)?),
        Order::Mount(order) => volumes::mount_volumes(&order)?,
        Order::Unmount(order) => volumes::unmount_volume(&order)?,
        Order::Probe(order) => probe::probe_mounts(&order)?,
        Order::ShowLxcfs(order) => lxcfs::show_files(&order)?,
        Order::ReadLxcfs(directory) => lxcfs::read_files(&directory)?,
        Order::Unpack(order) => return unpack::unpack_stdin(&order),
    }
    Ok(send_report(&Report::Done)?)
}

fn send_report(report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    let mut input = io::Read::take(io::stdin().lock(), MAX_LINE);
    if input.read_line(&mut line)? == 0 {
        return Err(io::Error::other("the engine is gone"));
    }
    Ok(line)
}

/// An error with its context, which keeps the number of the kernel's error.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Described {
    text: String,
    errno: Option<i32>,
}

/// Prefixes an error with its context.
fn with_context(what: impl Display) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let described = Described { text: format!("{what}: {error}"), errno: errno_of(&error) };
        io::Error::new(error.kind(), described)
    }
}

fn errno_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| error.get_ref()?.downcast_ref::<Described>()?.errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the kernel's error survives its context, and the text is complete.
    #[test]
    fn failure_is_reported_with_its_errno() {
        let error = io::Error::from(Errno::NOSPC);
        let text = format!("outer: inner: {error}");
        let Report::Failed { errno, reason } =
            Failure::from(with_context("outer")(with_context("inner")(error))).report()
        else {
            panic!("it is no failure");
        };
        assert_eq!((errno, reason), (Some(Errno::NOSPC.raw_os_error()), text));
        assert_eq!(errno_of(&with_context("outer")(io::Error::other("No space left (os error 28)"))), None);
    }
}
