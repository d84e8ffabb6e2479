//! Sockets in the filesystem, opened with the user's rights: a helper process runs as the user, opens the socket, and hands
//! it back. So the kernel checks what the user may reach, and `root` in the guest is lent to nobody.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use tokio::time::timeout;

use crate::pipe::Pipe;
use crate::service::Guest;
use crate::spawn::run_as;

/// How long the helper may take.
const HELPER_TIME: Duration = Duration::from_secs(10);

/// The longest words of the helper about what went wrong.
const MAX_WORDS: usize = 512;

/// What is done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Connect to the socket there.
    Connect,
    /// Make a socket there and listen.
    Listen,
    /// Remove the socket that is there.
    Remove,
}

const ACTIONS: [(&str, Action); 3] =
    [("connect", Action::Connect), ("listen", Action::Listen), ("remove", Action::Remove)];

/// Has the user open a socket; relative paths begin at his home. For [`Action::Remove`] the answer is of no use.
pub(crate) async fn as_user(guest: &Guest, action: Action, path: &str) -> io::Result<OwnedFd> {
    if path.is_empty() || path.contains('\0') {
        return Err(io::Error::other("that is no path"));
    }
    let account = guest.account()?;
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let name = ACTIONS.iter().find(|(_, known)| *known == action).map(|(name, _)| *name).unwrap_or_default();
    let mut command = Command::new(&guest.settings.helper);
    command.args(["open-socket", name, path]).env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
    run_as(&mut command, &account, false)?;
    guest.children.spawn(&mut command)?;
    // The command holds the helper's end: without it the helper's death would go unnoticed.
    drop(command);
    let ours = Pipe::new(ours)?;
    let answer = timeout(HELPER_TIME, ours.when_readable(|fd| receive(fd.as_fd())));
    answer.await.unwrap_or_else(|_| Err(io::Error::other("the helper did not answer")))
}

/// The helper's life: opens the socket and hands it to whoever holds the other end of its input.
pub fn helper(action: &str, path: &str) -> io::Result<()> {
    let action = ACTIONS.iter().find(|(name, _)| *name == action).map(|(_, action)| *action);
    let opened = match action {
        Some(Action::Connect) => UnixStream::connect(path).map(OwnedFd::from),
        Some(Action::Listen) => UnixListener::bind(path).map(OwnedFd::from),
        Some(Action::Remove) => remove(path),
        None => Err(io::Error::other("that is no action")),
    };
    let stdin = rustix::stdio::stdin();
    match opened {
        Ok(socket) => {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&sockets));
            rustix::net::sendmsg(stdin, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
        }
        Err(e) => {
            let words = e.to_string();
            rustix::net::send(stdin, &words.as_bytes()[..words.len().min(MAX_WORDS)], SendFlags::NOSIGNAL)?;
        }
    }
    Ok(())
}

/// Removes a socket, and nothing but a socket.
fn remove(path: &str) -> io::Result<OwnedFd> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        std::fs::remove_file(path)?;
    }
    Ok(UnixStream::pair()?.0.into())
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut words = [0; MAX_WORDS];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut words)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message
            && let Some(socket) = sockets.next()
        {
            rustix::io::ioctl_fionbio(&socket, true)?;
            return Ok(socket);
        }
    }
    let words = String::from_utf8_lossy(&words[..received.bytes]).into_owned();
    Err(io::Error::other(if words.is_empty() { "the helper could not be run".into() } else { words }))
}
