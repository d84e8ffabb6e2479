//! What the guest and the supervisor of an attempt say to each other: small messages over a pair of sockets.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tarn_link::JobEnd;

use super::failures::Failure;
use crate::pipe::Pipe;

/// The longest message.
const MAX_MESSAGE: usize = 4 << 10;

/// What the guest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToSupervisor {
    /// So much of the output is written down elsewhere.
    Acknowledged { offset: u64 },
    /// The attempt should end within the time.
    Stop { grace_seconds: u32 },
    /// The instance ends: everybody is told by the guest, and the output is kept to the last.
    InstanceEnds,
}

/// What the supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromSupervisor {
    /// The commands run.
    Started,
    /// They could not be run; the last message.
    NotStarted(Failure),
    /// The log has grown.
    Grew,
    /// There is no room for the log: what is not needed any more should go.
    Full,
    /// The attempt has ended, and all of its output is in the log; the last message.
    Ended(JobEnd),
}

/// One side.
#[derive(Debug)]
pub(super) struct Conversation(Pipe);

impl Conversation {
    /// The guest's side, and the socket that becomes the other.
    pub(super) fn new() -> io::Result<(Conversation, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Conversation::over(ours)?, theirs))
    }

    /// The side of who was given a socket.
    pub(super) fn over(socket: OwnedFd) -> io::Result<Conversation> {
        Ok(Conversation(Pipe::new(socket)?))
    }

    /// The next message; none when the other side is gone. Cancelling it loses nothing.
    pub(super) async fn hear<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let mut buffer = [0; MAX_MESSAGE];
        let receive = |fd: &OwnedFd| match rustix::net::recv(fd, &mut buffer, RecvFlags::empty()) {
            // The other side went without hearing everything. The kernel says so once, and before what that side said last.
            Err(Errno::CONNRESET) => Err(io::ErrorKind::Interrupted.into()),
            received => Ok(received?.1),
        };
        match self.0.when_readable(receive).await? {
            0 => Ok(None),
            length => Ok(Some(serde_json::from_slice(&buffer[..length.min(MAX_MESSAGE)])?)),
        }
    }

    /// Says something now; whether it was possible. Who is told so much that he cannot hear more knows enough.
    pub(super) fn mention<T: Serialize>(&self, message: &T) -> bool {
        let text = serde_json::to_vec(message).unwrap_or_default();
        rustix::net::send(self.0.as_fd(), &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }

    /// Says something as soon as it can be heard.
    pub(super) async fn tell<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.write(&text).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_words_of_who_did_not_listen_are_heard() {
        let (guest, theirs) = Conversation::new().expect("a pair");
        let supervisor = Conversation::over(theirs).expect("the other side");
        assert!(guest.mention(&ToSupervisor::Acknowledged { offset: 5 }));
        let ended = FromSupervisor::Ended(JobEnd::Exited { code: 0 });
        supervisor.tell(&ended).await.expect("said");
        drop(supervisor);
        assert_eq!(guest.hear().await.expect("heard"), Some(ended));
        assert_eq!(guest.hear::<FromSupervisor>().await.expect("heard"), None);
    }
}
