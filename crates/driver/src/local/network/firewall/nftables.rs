//! nftables: whole rulesets go through the `nft` program, and checks whether an object exists go directly to the
//! kernel, because they are frequent and starting a process takes a thousand times longer.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::Error;
use crate::local::network::links::netlink::io_failure;

/// The nftables subsystem of netfilter.
const SUBSYSTEM: u8 = 10;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACKNOWLEDGE: u16 = 4;
const FLAG_DUMP: u16 = 0x300;
const NESTED: u16 = 0x8000;

const NFT_TIMEOUT: Duration = Duration::from_secs(10);
/// Services often run with a search path that lacks the directories of administration programs.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

const LOAD: &str = "load the firewall";

/// Applies a text in one transaction.
pub(super) async fn load_ruleset(text: &str) -> Result<(), Error> {
    match run_nft(&["-f", "-"], text).await? {
        None => Ok(()),
        Some(refusal) => Err(io_failure(LOAD, &io::Error::other(refusal))),
    }
}

/// Returns whether nft and the kernel accept a text, without applying it.
pub(super) async fn accepts_ruleset(text: &str) -> Result<bool, Error> {
    Ok(run_nft(&["--check", "-f", "-"], text).await?.is_none())
}

/// Passes a text to nft; returns its error message, if it refuses.
async fn run_nft(arguments: &[&str], text: &str) -> Result<Option<String>, Error> {
    let mut child = spawn_nft(arguments)?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    let run = async {
        // A program that ends early breaks the pipe; its own message is more specific than that error.
        let written = input.write_all(text.as_bytes()).await;
        drop(input);
        let output = child.wait_with_output().await?;
        if output.status.success() { written.map(|()| None) } else { Ok(Some(first_error_line(&output.stderr))) }
    };
    match tokio::time::timeout(NFT_TIMEOUT, run).await {
        Ok(result) => result.map_err(|error| io_failure(LOAD, &error)),
        Err(_) => Err(Error::Retry(format!("cannot {LOAD}: nft did not end in time"))),
    }
}

/// The kind of packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// All IP packets.
    Inet = 1,
    /// All frames in bridges.
    Bridge = 7,
}

impl Family {
    /// The name in rulesets.
    pub(in crate::local::network) fn name(self) -> &'static str {
        match self {
            Family::Inet => "inet",
            Family::Bridge => "bridge",
        }
    }
}

/// Returns whether a table exists.
pub(super) fn has_table(family: Family, table: &str) -> Result<bool, Error> {
    const GET_TABLE: u8 = 1;
    object_exists(family, GET_TABLE, &[(1, table)])
}

/// Returns whether a chain exists.
pub(super) fn has_chain(family: Family, table: &str, chain: &str) -> Result<bool, Error> {
    const GET_CHAIN: u8 = 4;
    object_exists(family, GET_CHAIN, &[(1, table), (3, chain)])
}

/// Returns how many rules are in a table.
pub(super) fn count_rules(family: Family, table: &str) -> Result<usize, Error> {
    const NEW_RULE: u8 = 6;
    const GET_RULE: u8 = 7;
    let body = [&[family as u8, 0, 0, 0][..], &name_attribute(1, table)].concat();
    let question = netlink_message(u16::from_be_bytes([SUBSYSTEM, GET_RULE]), FLAG_REQUEST | FLAG_DUMP, &body);
    let kind = u16::from_be_bytes([SUBSYSTEM, NEW_RULE]);
    count_replies(&question, kind).map_err(|error| io_failure("read the firewall", &error))
}

/// Removes all tracked flows that originate from an address.
pub(super) fn forget_flows(address: Ipv4Addr) -> io::Result<()> {
    const FLOWS: u8 = 1;
    const DELETE: u8 = 2;
    const INTERNET: u8 = 2;
    const BY_SOURCE: u32 = 1;
    let source =
        netlink_attribute(1 | NESTED, &netlink_attribute(1 | NESTED, &netlink_attribute(1, &address.octets())));
    let by = [netlink_attribute(1, &BY_SOURCE.to_ne_bytes()), netlink_attribute(2, &0_u32.to_ne_bytes())].concat();
    let body = [&[INTERNET, 0, 0, 0][..], &source, &netlink_attribute(25 | NESTED, &by)].concat();
    match send_request(&netlink_message(u16::from_be_bytes([FLOWS, DELETE]), FLAG_REQUEST | FLAG_ACKNOWLEDGE, &body)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Adds a key to a set, or removes it. Returns whether the set exists and, for a removal, whether the key was in it.
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
    let element = netlink_attribute(1 | NESTED, &netlink_attribute(1 | NESTED, &netlink_attribute(1, key)));
    let head = [family as u8, 0, 0, 0];
    let body =
        [&head[..], &name_attribute(1, table), &name_attribute(2, set), &netlink_attribute(3 | NESTED, &element)]
            .concat();
    let verb = if is_member { NEW_ELEMENT } else { DELETE_ELEMENT };
    // Changes are made in batches, whose first and last message name the subsystem.
    let edge = [0, 0, 0, SUBSYSTEM];
    let batch = [
        netlink_message(BEGIN, FLAG_REQUEST, &edge),
        netlink_message(u16::from_be_bytes([SUBSYSTEM, verb]), FLAG_REQUEST | FLAG_ACKNOWLEDGE, &body),
        netlink_message(END, FLAG_REQUEST, &edge),
    ];
    match send_request(&batch.concat()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_failure("change the firewall", &error)),
    }
}

fn spawn_nft(arguments: &[&str]) -> Result<Child, Error> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(|error| io_failure("start nft", &error)),
        }
    }
    Err(Error::Permanent("the program nft is missing on the host: install the package nftables".to_owned()))
}

/// An error message of nft can be as long as its input.
fn first_error_line(bytes: &[u8]) -> String {
    tarn_base::plain(String::from_utf8_lossy(bytes).lines().next().unwrap_or("nft failed"), 300).into_owned()
}

/// Queries the kernel for one object, named by attributes.
fn object_exists(family: Family, question: u8, names: &[(u16, &str)]) -> Result<bool, Error> {
    match send_request(&get_request(family, question, names)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // A kernel that has not loaded nftables yet has no tables either.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => Ok(false),
        Err(error) => Err(io_failure("read the firewall", &error)),
    }
}

/// Builds an nfnetlink query: the netlink header, the header of the family, and the names.
fn get_request(family: Family, question: u8, names: &[(u16, &str)]) -> Vec<u8> {
    let mut body = vec![family as u8, 0, 0, 0];
    for (kind, name) in names {
        body.extend(name_attribute(*kind, name));
    }
    netlink_message(u16::from_be_bytes([SUBSYSTEM, question]), FLAG_REQUEST, &body)
}

/// Builds a message with the netlink header.
fn netlink_message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).expect("messages are short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // The sequence number and the port id do not matter for a socket that is used once.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Builds an attribute, padded to a multiple of four bytes.
fn netlink_attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + content.len()).expect("attributes are short");
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(content);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Builds an attribute that is a name.
fn name_attribute(kind: u16, name: &str) -> Vec<u8> {
    netlink_attribute(kind, &[name.as_bytes(), &[0]].concat())
}

/// Sends a request. The kernel replies while it receives the message, so reading never blocks.
fn send_request(message: &[u8]) -> io::Result<()> {
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
        (None, _) => Err(io::Error::new(ErrorKind::InvalidData, "the kernel's reply is too short")),
    }
}

/// Requests a list, and counts the replies of a kind. The kernel produces the list while it is read, so reading never
/// blocks.
fn count_replies(question: &[u8], kind: u16) -> io::Result<usize> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let malformed = || io::Error::new(ErrorKind::InvalidData, "the kernel's reply is malformed");
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
                other => found += usize::from(other == Some(kind)),
            }
            rest = rest.get(length.max(16).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
