//! Unix sockets, opened with the rights of the user: a helper process runs as the user, opens the socket, and passes it
//! back. So the kernel checks the user's access, and no user can use the guest's root rights.

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

use crate::link_service::Guest;
use crate::process::Pipe;
use crate::process::spawn::run_as_user_at_home;

/// How long the helper may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of the helper's error message.
const MAX_ERROR_LENGTH: usize = 512;

/// What to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Connect,
    Listen,
    Remove,
}

const ACTIONS: [(&str, Action); 3] =
    [("connect", Action::Connect), ("listen", Action::Listen), ("remove", Action::Remove)];

/// Opens a socket as the user; relative paths start at the home directory. For [`Action::Remove`] the result is
/// meaningless.
pub(crate) async fn open_as_user(guest: &Guest, action: Action, path: &str) -> io::Result<OwnedFd> {
    if path.is_empty() || path.contains('\0') {
        return Err(io::Error::other("that is not a path"));
    }
    let account = guest.account()?;
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let name = ACTIONS.iter().find(|(_, known)| *known == action).map(|(name, _)| *name).unwrap_or_default();
    let mut command = Command::new(&guest.settings.helper);
    command.args(["open-socket", name, path]).env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
    run_as_user_at_home(&mut command, &account, false)?;
    guest.children.spawn(&mut command)?;
    // The command holds the helper's end; while it is open, the death of the helper goes unnoticed.
    drop(command);
    let ours = Pipe::new(ours)?;
    let answer = timeout(HELPER_TIMEOUT, ours.when_readable(|fd| receive_socket(fd.as_fd())));
    answer.await.unwrap_or_else(|_| Err(io::Error::other("the helper did not respond")))
}

/// Runs the helper: opens the socket and passes it to the process at the other end of its standard input.
pub fn run_socket_helper(action: &str, path: &str) -> io::Result<()> {
    let action = ACTIONS.iter().find(|(name, _)| *name == action).map(|(_, action)| *action);
    let opened = match action {
        Some(Action::Connect) => UnixStream::connect(path).map(OwnedFd::from),
        Some(Action::Listen) => UnixListener::bind(path).map(OwnedFd::from),
        Some(Action::Remove) => remove_socket(path),
        None => Err(io::Error::other("unknown action")),
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
            let message = e.to_string();
            rustix::net::send(stdin, &message.as_bytes()[..message.len().min(MAX_ERROR_LENGTH)], SendFlags::NOSIGNAL)?;
        }
    }
    Ok(())
}

/// Removes a socket, and nothing else.
fn remove_socket(path: &str) -> io::Result<OwnedFd> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        std::fs::remove_file(path)?;
    }
    Ok(UnixStream::pair()?.0.into())
}

fn receive_socket(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut buffer = [0; MAX_ERROR_LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message
            && let Some(socket) = sockets.next()
        {
            rustix::io::ioctl_fionbio(&socket, true)?;
            return Ok(socket);
        }
    }
    let error = String::from_utf8_lossy(&buffer[..received.bytes]).into_owned();
    Err(io::Error::other(if error.is_empty() { "the helper could not be run".into() } else { error }))
}
