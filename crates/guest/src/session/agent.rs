//! The client's authentication agent, offered to a session as a socket that only its user can reach.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::accounts::Account;
use crate::service::pending::{MAX_WAITING, Pending};

const SOCKET: &str = "agent";

/// The socket; it goes away with the session.
#[derive(Debug)]
pub(super) struct Agent {
    listener: UnixListener,
    directory: OwnedFd,
    directory_path: PathBuf,
    path: PathBuf,
    places: Arc<Semaphore>,
}

impl Agent {
    /// Makes the socket. Its directory is the guest's own until all is done, so that nobody can put something else in place.
    pub(super) fn open(account: &Account) -> io::Result<Self> {
        let directory_path = PathBuf::from(format!("/tmp/ssh-{}", crate::chance::letters(16)?));
        rustix::fs::mkdir(&directory_path, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&directory_path, flags, Mode::empty())?;
        let path = directory_path.join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        let agent = Agent { listener, directory, directory_path, path, places: Arc::new(Semaphore::new(MAX_WAITING)) };
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)));
            rustix::fs::chownat(&agent.directory, SOCKET, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            rustix::fs::fchown(&agent.directory, uid, gid)?;
        }
        Ok(agent)
    }

    /// Where the socket is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next program that asks for the agent.
    pub(super) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // Descriptors or memory are short: others must end first, and trying again at once would only burn time.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    }

    /// Lets the engine take a connection; `None` if too many wait already, and the connection is closed.
    pub(super) fn offer(&self, pending: &Arc<Pending>, stream: UnixStream) -> Option<u64> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        pending.offer(place, Box::new(stream))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The user may have moved or removed it; links are not followed, so nothing else can be hit.
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
        let _ = rustix::fs::unlinkat(CWD, &self.directory_path, AtFlags::REMOVEDIR);
    }
}
