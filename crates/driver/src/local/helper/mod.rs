//! The helper: a short-lived process that carries out one order in namespaces that are not the machine's.
//!
//! libcontainer forks and changes namespaces, and so does whoever mounts something in an instance. A program with threads must
//! not do that, so the engine never does: it starts its own binary again, and that ends up in [`main`]. The helper has one
//! thread, knows nothing but its `order`, and leaves nothing behind when it fails or when the engine dies before an
//! instance may begin. Start reading at `start`, then `volumes`; `unpack` is for layers of images, and trusts them with nothing.

pub(in crate::local) mod kernel;
mod mount_calls;
mod namespaces;
pub(in crate::local) mod order;
mod probe;
mod start;
mod unpack;
mod volumes;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use rustix::io::Errno;

use order::{Order, Refused, Report};

/// The longest line that is read.
const MAX_LINE: u64 = 1 << 20;

/// Why an order was not carried out.
enum Failure {
    /// A volume is in a state that somebody has to know of.
    Refused(Refused),
    /// A layer of an image cannot be unpacked; why, in words for the owner.
    Unfit(String),
    /// A layer of an image is larger than there is room for.
    Full,
    /// Anything else.
    Failed(io::Error),
}

impl Failure {
    fn report(self) -> Report {
        match self {
            Failure::Refused(refused) => Report::Refused(refused),
            Failure::Unfit(reason) => Report::Unfit { reason },
            Failure::Full => Report::Full,
            Failure::Failed(error) => Report::Failed { reason: error.to_string() },
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

/// The helper's whole life: the order comes on the standard input, reports go to the standard output.
pub fn main() -> ExitCode {
    let Err(failure) = run() else { return ExitCode::SUCCESS };
    // Nobody may be listening any more, and then there is nobody to tell.
    let _heard = say(&failure.report());
    ExitCode::FAILURE
}

fn run() -> Result<(), Failure> {
    kernel::close_inherited()?;
    match serde_json::from_str(&read_line()?).map_err(io::Error::from)? {
        Order::Start(order) => return Ok(start::start(&order)?),
        Order::Mount(order) => volumes::mount(&order)?,
        Order::Unmount(order) => volumes::unmount(&order)?,
        Order::Probe(order) => probe::probe(&order)?,
        Order::Unpack(order) => return unpack::unpack(&order),
    }
    Ok(say(&Report::Done)?)
}

fn say(report: &Report) -> io::Result<()> {
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

/// Puts words before an error.
fn at(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
