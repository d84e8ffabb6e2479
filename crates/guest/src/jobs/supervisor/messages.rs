//! The messages between the guest and the supervisor of an attempt, over a pair of sockets.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tarn_link::JobEnd;

use crate::jobs::attempts::Failure;
use crate::process::Pipe;

/// The maximum length of a message.
const MAX_MESSAGE: usize = 4 << 10;

/// What the guest sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::jobs) enum ToSupervisor {
    /// The engine has stored the output up to this offset.
    Acknowledged { offset: u64 },
    /// The attempt should end within the grace period.
    Stop { grace_seconds: u32 },
    /// The instance is stopping: the guest signals all processes, and the supervisor keeps the output until the end.
    InstanceEnds,
}

/// What the supervisor sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::jobs) enum FromSupervisor {
    Started,
    /// The commands could not be started; the last message.
    NotStarted(Failure),
    Grew,
    /// The disk is full: the guest should remove what it no longer needs.
    Full,
    /// The attempt has ended, and all of its output is in the log; the last message.
    Ended(JobEnd),
}

/// One side of the connection between guest and supervisor.
#[derive(Debug)]
pub(in crate::jobs) struct SupervisorChannel(Pipe);

impl SupervisorChannel {
    /// Creates the guest's side, and the socket for the supervisor.
    pub(in crate::jobs) fn pair() -> io::Result<(SupervisorChannel, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((SupervisorChannel::from_socket(ours)?, theirs))
    }

    /// Creates the side of the process that was given a socket.
    pub(in crate::jobs) fn from_socket(socket: OwnedFd) -> io::Result<SupervisorChannel> {
        Ok(SupervisorChannel(Pipe::new(socket)?))
    }

    /// Waits for the next message; `None` when the other side is gone. Cancelling loses no message.
    pub(in crate::jobs) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let mut buffer = [0; MAX_MESSAGE];
        let receive_packet = |fd: &OwnedFd| match rustix::net::recv(fd, &mut buffer, RecvFlags::empty()) {
            // The other side closed with unread messages. The kernel reports this once, before the last messages of
            // that side.
            Err(Errno::CONNRESET) => Err(io::ErrorKind::Interrupted.into()),
            received => Ok(received?.1),
        };
        match self.0.when_readable(receive_packet).await? {
            0 => Ok(None),
            length => Ok(Some(serde_json::from_slice(&buffer[..length.min(MAX_MESSAGE)])?)),
        }
    }

    /// Sends a message without waiting; returns whether that was possible. A receiver whose buffer is full has enough
    /// to process.
    pub(in crate::jobs) fn try_send<T: Serialize>(&self, message: &T) -> bool {
        let text = serde_json::to_vec(message).unwrap_or_default();
        rustix::net::send(self.0.as_fd(), &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }

    /// Sends a message, and waits until it can be sent.
    pub(in crate::jobs) async fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.write(&text).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last message of a side that closed with unread messages is received.
    #[tokio::test]
    async fn last_message_survives_unread_input() {
        let (guest, theirs) = SupervisorChannel::pair().expect("a pair");
        let supervisor = SupervisorChannel::from_socket(theirs).expect("the other side");
        assert!(guest.try_send(&ToSupervisor::Acknowledged { offset: 5 }));
        let ended = FromSupervisor::Ended(JobEnd::Exited { code: 0 });
        supervisor.send(&ended).await.expect("sent");
        drop(supervisor);
        assert_eq!(guest.receive().await.expect("received"), Some(ended));
        assert_eq!(guest.receive::<FromSupervisor>().await.expect("received"), None);
    }
}
