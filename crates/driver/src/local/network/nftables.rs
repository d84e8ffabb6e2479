//! Talking to nftables: whole texts go through the `nft` program, and the question whether something is there goes straight to
//! the kernel, because it is asked often and a process takes a thousand times longer.

use std::io::{self, ErrorKind};
use std::process::Stdio;
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::netlink::failed;
use crate::Error;

const LIMIT: Duration = Duration::from_secs(10);
/// Services often run with a search path that lacks the directories of administration programs.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

/// Applies a text in one transaction: all of it or nothing.
pub(super) async fn load(text: &str) -> Result<(), Error> {
    let what = "load the firewall";
    let mut child = spawn()?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    let run = async {
        // A program that ends early breaks the pipe; its own words then say more than that.
        let written = input.write_all(text.as_bytes()).await;
        drop(input);
        let output = child.wait_with_output().await?;
        match output.status.success() {
            true => written,
            false => Err(io::Error::other(first_line(&output.stderr))),
        }
    };
    match tokio::time::timeout(LIMIT, run).await {
        Ok(result) => result.map_err(|error| failed(what, &error)),
        Err(_) => Err(Error::Retry(format!("cannot {what}: nft did not end in time"))),
    }
}

/// Whether there is such a table.
pub(super) fn has_table(table: &str) -> Result<bool, Error> {
    const GET_TABLE: u8 = 1;
    has(GET_TABLE, &[(1, table)])
}

/// Whether the table is there and has such a chain.
pub(super) fn has_chain(table: &str, chain: &str) -> Result<bool, Error> {
    const GET_CHAIN: u8 = 4;
    has(GET_CHAIN, &[(1, table), (3, chain)])
}

fn spawn() -> Result<Child, Error> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(|error| failed("start nft", &error)),
        }
    }
    Err(Error::Permanent("the program nft is missing on the machine: install the package nftables".to_owned()))
}

/// What nft says of an error can be as long as the text it was given.
fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or("nft failed").chars().take(300).collect()
}

/// Asks the kernel for one object of the family `inet`, named by attributes.
fn has(question: u8, names: &[(u16, &str)]) -> Result<bool, Error> {
    match ask(&message(question, names)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // A kernel that has not loaded this part yet has no tables either.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => Ok(false),
        Err(error) => Err(failed("look at the firewall", &error)),
    }
}

/// A request of nfnetlink: the header of every netlink message, that of the family, and the names.
fn message(question: u8, names: &[(u16, &str)]) -> Vec<u8> {
    const SUBSYSTEM_NFTABLES: u8 = 10;
    const FLAG_REQUEST: u16 = 1;
    const FAMILY_INET: u8 = 1;
    let mut body = vec![FAMILY_INET, 0, 0, 0];
    for (kind, name) in names {
        let length = u16::try_from(4 + name.len() + 1).expect("names are short");
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(name.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(16 + body.len()).expect("names are short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(u16::from_be_bytes([SUBSYSTEM_NFTABLES, question]).to_ne_bytes());
    message.extend(FLAG_REQUEST.to_ne_bytes());
    // The sequence and the sender's number may be anything when a socket is used for one question.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Sends a question. The kernel answers while it takes the message, so that there is nothing to wait for.
fn ask(message: &[u8]) -> io::Result<()> {
    const ERROR: u16 = 2;
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.set_non_blocking(true)?;
    socket.send_to(message, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ERROR), Some(code)) if code != 0 => Err(io::Error::from_raw_os_error(-code)),
        (Some(_), _) => Ok(()),
        (None, _) => Err(io::Error::new(ErrorKind::InvalidData, "the kernel's answer is too short")),
    }
}
