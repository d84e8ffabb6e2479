//! An end of a pipe, socket or terminal that is read and written without blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// The capacity of a pipe if the kernel allows it; a large pipe needs fewer wake-ups for bulk data.
const PIPE_SIZE: usize = 1 << 20;

/// The guest's end of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe(AsyncFd<OwnedFd>);

impl Pipe {
    /// Takes ownership of a file descriptor.
    #[allow(unsafe_code, reason = "the runtime requires that the descriptor stays open")]
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        // Fails for terminals and sockets, and at the kernel's limit per user; neither matters.
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_SIZE);
        // SAFETY: the descriptor is owned, so it is open and stays the same file until it is dropped.
        Ok(Pipe(unsafe { AsyncFd::register(fd)? }))
    }

    /// Reads available data; 0 at the end. A terminal without programs reports an error, which counts as the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.when_readable(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)).await {
            Err(e) if e.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(0),
            result => result,
        }
    }

    /// Waits until the descriptor is readable and calls `act` until it does not block.
    pub(crate) async fn when_readable<T>(&self, mut act: impl FnMut(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| act(fd.get_ref())) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Writes as much as fits.
    pub(crate) async fn write(&self, data: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd, data)?)) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
