//! Sends the files of a job: a helper program that runs as the user in the directory of the job, so the kernel decides
//! what may be read. It writes the frames that the engine reads.

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

use crate::jobs::files::patterns::Patterns;
use crate::jobs::files::walk::{FoundFile, Walk, open_below};

/// Runs the helper: reads the request from its standard input, and writes the files to its standard output.
pub fn run_collect_helper() -> io::Result<()> {
    let mut text = Vec::new();
    io::stdin().take(MAX_MESSAGE as u64).read_to_end(&mut text)?;
    let order: OutputsOrder = serde_json::from_slice(&text)?;
    // All writes block; the runtime exists only because the frame writer is asynchronous.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(collect_files(&order, Writer::new(BlockingOutput(duplicate_stdout()?)))).map_err(io::Error::other)
}

fn duplicate_stdout() -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?))
}

async fn collect_files(order: &OutputsOrder, mut writer: Writer<BlockingOutput>) -> tarn_link::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(".", flags, Mode::empty()).map_err(io::Error::from)?;
    let (patterns, refused) = Patterns::new(&order.patterns);
    for (pattern, reason) in refused {
        writer.message(&FromOutputs::Skipped { path: pattern, reason: reason.into() }).await?;
    }
    for FoundFile { path, size } in Walk::new(&directory, &patterns, &order.only).find_files() {
        match size {
            Ok(_) if order.contents => send_file(&directory, path, &mut writer).await?,
            Ok(size) => writer.message(&FromOutputs::File { path, size }).await?,
            Err(reason) => writer.message(&FromOutputs::Skipped { path, reason }).await?,
        }
    }
    writer.message(&FromOutputs::End).await
}

/// Sends a file with its contents, up to its length when it is opened: it may grow meanwhile.
async fn send_file(directory: &OwnedFd, path: String, writer: &mut Writer<BlockingOutput>) -> tarn_link::Result<()> {
    // What was a file before may now be something that blocks its reader.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_below(directory, Path::new(&path), flags).map_err(io::Error::from).map(File::from);
    let opened = opened.and_then(|file| {
        let found = file.metadata()?;
        if found.is_file() { Ok((file, found.len())) } else { Err(io::Error::other("it is not a regular file")) }
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

/// A blocking output.
struct BlockingOutput(File);

impl AsyncWrite for BlockingOutput {
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
