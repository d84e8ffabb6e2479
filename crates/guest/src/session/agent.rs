//! The client's authentication agent, offered to a session through a socket that only its user can access.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::link_service::listen::{MAX_PENDING_PER_LISTENER, PendingConnections};
use crate::users::Account;

const SOCKET: &str = "agent";

/// The agent socket of a session; it is removed with the session.
#[derive(Debug)]
pub(super) struct Agent {
    listener: UnixListener,
    directory: OwnedFd,
    directory_path: PathBuf,
    path: PathBuf,
    permits: Arc<Semaphore>,
}

impl Agent {
    /// Creates the socket. The guest owns its directory until everything is set up, so that no other process can
    /// interfere.
    pub(super) fn open(account: &Account) -> io::Result<Self> {
        let directory_path = PathBuf::from(format!("/tmp/ssh-{}", random_letters(16)?));
        rustix::fs::mkdir(&directory_path, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&directory_path, flags, Mode::empty())?;
        let path = directory_path.join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        let agent = Agent {
            listener,
            directory,
            directory_path,
            path,
            permits: Arc::new(Semaphore::new(MAX_PENDING_PER_LISTENER)),
        };
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)));
            rustix::fs::chownat(&agent.directory, SOCKET, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            rustix::fs::fchown(&agent.directory, uid, gid)?;
        }
        Ok(agent)
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next program that connects to the agent.
    pub(super) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // Descriptors or memory have run out: others must end first, and an immediate retry would only waste
                // time.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    }

    /// Offers a connection to the engine; `None` if too many are pending, and the connection is closed.
    pub(super) fn offer_connection(&self, pending: &Arc<PendingConnections>, stream: UnixStream) -> Option<u64> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        pending.offer_connection(permit, Box::new(stream))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The user may have moved or removed it; links are not followed, so no other file is affected.
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
        let _ = rustix::fs::unlinkat(CWD, &self.directory_path, AtFlags::REMOVEDIR);
    }
}

/// Returns random letters and digits, so that other users cannot guess the path.
fn random_letters(count: usize) -> io::Result<String> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = vec![0; count];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}
