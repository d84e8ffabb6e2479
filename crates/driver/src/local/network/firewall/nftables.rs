//! Talking to nftables: whole texts go through the `nft` program, and the question whether something is there goes straight to
//! the kernel, because it is asked often and a process takes a thousand times longer.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::Error;
use crate::local::network::links::netlink::failed;

/// The part of netfilter that is spoken to.
const SUBSYSTEM: u8 = 10;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACKNOWLEDGE: u16 = 4;
const FLAG_DUMP: u16 = 0x300;
const NESTED: u16 = 0x8000;

const LIMIT: Duration = Duration::from_secs(10);
/// Services often run with a search path that lacks the directories of administration programs.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

const LOAD: &str = "load the firewall";

/// Applies a text in one transaction: all of it or nothing.
pub(super) async fn load(text: &str) -> Result<(), Error> {
    match run(&["-f", "-"], text).await? {
        None => Ok(()),
        Some(refusal) => Err(failed(LOAD, &io::Error::other(refusal))),
    }
}

/// Whether nft and the kernel take a text, of which nothing is applied.
pub(in crate::local::network) async fn takes(text: &str) -> Result<bool, Error> {
    Ok(run(&["--check", "-f", "-"], text).await?.is_none())
}

/// Gives nft a text; its words, if it refuses.
async fn run(arguments: &[&str], text: &str) -> Result<Option<String>, Error> {
    let mut child = spawn(arguments)?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    let run = async {
        // A program that ends early breaks the pipe; its own words then say more than that.
        let written = input.write_all(text.as_bytes()).await;
        drop(input);
        let output = child.wait_with_output().await?;
        match output.status.success() {
            true => written.map(|()| None),
            false => Ok(Some(first_line(&output.stderr))),
        }
    };
    match tokio::time::timeout(LIMIT, run).await {
        Ok(result) => result.map_err(|error| failed(LOAD, &error)),
        Err(_) => Err(Error::Retry(format!("cannot {LOAD}: nft did not end in time"))),
    }
}

/// Where a table looks at packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// At all that are of the internet protocols.
    Inet = 1,
    /// At all that go through a bridge.
    Bridge = 7,
}

impl Family {
    /// As texts have it.
    pub(in crate::local::network) fn name(self) -> &'static str {
        match self {
            Family::Inet => "inet",
            Family::Bridge => "bridge",
        }
    }
}

/// Whether there is such a table.
pub(super) fn has_table(family: Family, table: &str) -> Result<bool, Error> {
    const GET_TABLE: u8 = 1;
    has(family, GET_TABLE, &[(1, table)])
}

/// Whether the table is there and has such a chain.
pub(super) fn has_chain(family: Family, table: &str, chain: &str) -> Result<bool, Error> {
    const GET_CHAIN: u8 = 4;
    has(family, GET_CHAIN, &[(1, table), (3, chain)])
}

/// How many rules are in a table.
pub(super) fn count_rules(family: Family, table: &str) -> Result<usize, Error> {
    const NEW_RULE: u8 = 6;
    const GET_RULE: u8 = 7;
    let body = [&[family as u8, 0, 0, 0][..], &named(1, table)].concat();
    let question = framed(u16::from_be_bytes([SUBSYSTEM, GET_RULE]), FLAG_REQUEST | FLAG_DUMP, &body);
    let kind = u16::from_be_bytes([SUBSYSTEM, NEW_RULE]);
    count(&question, kind).map_err(|error| failed("look at the firewall", &error))
}

/// Makes the kernel forget all flows that an address began.
pub(super) fn forget_flows(address: Ipv4Addr) -> io::Result<()> {
    const FLOWS: u8 = 1;
    const DELETE: u8 = 2;
    const INTERNET: u8 = 2;
    const BY_SOURCE: u32 = 1;
    let source = attribute(1 | NESTED, &attribute(1 | NESTED, &attribute(1, &address.octets())));
    let by = [attribute(1, &BY_SOURCE.to_ne_bytes()), attribute(2, &0_u32.to_ne_bytes())].concat();
    let body = [&[INTERNET, 0, 0, 0][..], &source, &attribute(25 | NESTED, &by)].concat();
    match ask(&framed(u16::from_be_bytes([FLOWS, DELETE]), FLAG_REQUEST | FLAG_ACKNOWLEDGE, &body)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Puts a key into a set, or takes it out. Says whether there is such a set, and for what is taken out, whether it was there.
pub(super) fn change_set(
    family: Family,
    (table, set): (&str, &str),
    key: &[u8],
    is_member: bool,
) -> Result<bool, Error> {
    const NEW_ELEMENT: u8 = 12;
    const DELETE_ELEMENT: u8 = 14;
    const BEGIN: u16 = 16;
    const END: u16 = 17;
    let element = attribute(1 | NESTED, &attribute(1 | NESTED, &attribute(1, key)));
    let head = [family as u8, 0, 0, 0];
    let body = [&head[..], &named(1, table), &named(2, set), &attribute(3 | NESTED, &element)].concat();
    let verb = if is_member { NEW_ELEMENT } else { DELETE_ELEMENT };
    // Changes are made by whole batches, which say for whom they are.
    let edge = [0, 0, 0, SUBSYSTEM];
    let batch = [
        framed(BEGIN, FLAG_REQUEST, &edge),
        framed(u16::from_be_bytes([SUBSYSTEM, verb]), FLAG_REQUEST | FLAG_ACKNOWLEDGE, &body),
        framed(END, FLAG_REQUEST, &edge),
    ];
    match ask(&batch.concat()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("change the firewall", &error)),
    }
}

fn spawn(arguments: &[&str]) -> Result<Child, Error> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
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

/// Asks the kernel for one object, named by attributes.
fn has(family: Family, question: u8, names: &[(u16, &str)]) -> Result<bool, Error> {
    match ask(&message(family, question, names)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // A kernel that has not loaded this part yet has no tables either.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => Ok(false),
        Err(error) => Err(failed("look at the firewall", &error)),
    }
}

/// A request of nfnetlink: the header of every netlink message, that of the family, and the names.
fn message(family: Family, question: u8, names: &[(u16, &str)]) -> Vec<u8> {
    let mut body = vec![family as u8, 0, 0, 0];
    for (kind, name) in names {
        body.extend(named(*kind, name));
    }
    framed(u16::from_be_bytes([SUBSYSTEM, question]), FLAG_REQUEST, &body)
}

/// A message with the header that all have.
fn framed(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).expect("messages are short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // The sequence and the sender's number may be anything when a socket is used for one question.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// An attribute, which begins at a whole word.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + content.len()).expect("attributes are short");
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(content);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// An attribute that is a name.
fn named(kind: u16, name: &str) -> Vec<u8> {
    attribute(kind, &[name.as_bytes(), &[0]].concat())
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

/// Asks for a list, and counts the answers of a kind. The kernel makes the list while it is read, so that here, too, there is
/// nothing to wait for.
fn count(question: &[u8], kind: u16) -> io::Result<usize> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let malformed = || io::Error::new(ErrorKind::InvalidData, "the kernel's answer is malformed");
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.set_non_blocking(true)?;
    socket.send_to(question, &SocketAddr::new(0, 0), 0)?;
    let mut found = 0;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while let Some((length, bytes)) = rest.split_first_chunk::<4>() {
            let length = u32::from_ne_bytes(*length) as usize;
            match bytes.first_chunk().map(|kind| u16::from_ne_bytes(*kind)) {
                Some(DONE) => return Ok(found),
                Some(ERROR) => {
                    let code = rest.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
                    return Err(io::Error::from_raw_os_error(-code.ok_or_else(malformed)?));
                }
                told => found += usize::from(told == Some(kind)),
            }
            rest = rest.get(length.max(16).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
