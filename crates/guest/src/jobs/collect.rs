//! Giving back the files of a job: a program of its own that runs as the user in the directory of the job, so that the kernel
//! decides what may be read. What it writes is what the engine reads, frame by frame.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags};
use tarn_link::frames::{MAX_DATA, MAX_MESSAGE};
use tarn_link::{FromOutputs, OutputsOrder, Writer};
use tokio::io::AsyncWrite;

use super::patterns::Patterns;
use super::walk::{Found, Walk, open_below};

/// The life of the helper: reads what is wanted, and writes it.
pub fn main() -> io::Result<()> {
    let mut text = Vec::new();
    io::stdin().take(MAX_MESSAGE as u64).read_to_end(&mut text)?;
    let order: OutputsOrder = serde_json::from_slice(&text)?;
    // Only one thing happens at a time, and it may block; the runtime is here because the frames are written by way of it.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(collect(&order, Writer::new(Blocking(own_output()?)))).map_err(io::Error::other)
}

fn own_output() -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?))
}

async fn collect(order: &OutputsOrder, mut writer: Writer<Blocking>) -> tarn_link::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(".", flags, Mode::empty()).map_err(io::Error::from)?;
    let (patterns, refused) = Patterns::new(&order.patterns);
    for (pattern, reason) in refused {
        writer.message(&FromOutputs::Skipped { path: pattern, reason: reason.into() }).await?;
    }
    for Found { path, size } in Walk::new(&directory, &patterns, &order.only).run() {
        match size {
            Ok(_) if order.contents => send(&directory, path, &mut writer).await?,
            Ok(size) => writer.message(&FromOutputs::File { path, size }).await?,
            Err(reason) => writer.message(&FromOutputs::Skipped { path, reason }).await?,
        }
    }
    writer.message(&FromOutputs::End).await
}

/// Sends a file with its contents, as long as it is when it is opened: it may be written to meanwhile, without end.
async fn send(directory: &OwnedFd, path: String, writer: &mut Writer<Blocking>) -> tarn_link::Result<()> {
    // Whatever was a file before may be something that makes its reader wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_below(directory, Path::new(&path), flags).map_err(io::Error::from).map(File::from);
    let opened = opened.and_then(|file| {
        let found = file.metadata()?;
        if found.is_file() { Ok((file, found.len())) } else { Err(io::Error::other("it is no ordinary file")) }
    });
    let (mut file, size) = match opened {
        Ok(opened) => opened,
        Err(e) => return writer.message(&FromOutputs::Skipped { path, reason: e.to_string() }).await,
    };
    writer.message(&FromOutputs::File { path: path.clone(), size }).await?;
    let (mut buffer, mut left) = (vec![0; MAX_DATA], size);
    let mut failure = None;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(MAX_DATA).min(MAX_DATA);
        match file.read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(length) => {
                writer.data(&buffer[..length]).await?;
                left -= length as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                failure = Some(e.to_string());
                break;
            }
        }
    }
    writer.eof().await?;
    match failure {
        Some(reason) => writer.message(&FromOutputs::Skipped { path, reason }).await,
        None => Ok(()),
    }
}

/// An output that blocks.
struct Blocking(File);

impl AsyncWrite for Blocking {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
