//! Checking an archive while it arrives: a tar archive compressed by gzip, with clean paths and nothing in it that could harm.
//!
//! Nothing is unpacked here, and nothing of it is kept. [`entries`] knows what a tar archive is; this file takes the bytes out of
//! the compression, on threads that may take their time: a few kilobytes can stand for many megabytes.

mod entries;
mod paths;
#[cfg(test)]
mod tests;

use std::io::Write;

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;

use self::entries::Entries;
use crate::{Error, Result};

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How many entries.
    pub(crate) files: u64,
    /// How many bytes together.
    pub(crate) unpacked_bytes: u64,
}

/// What is wrong with an archive, for whoever made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is not an archive, or has something in it that is not allowed.
    Invalid(String),
    /// It holds too much.
    TooLarge(String),
}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Invalid(why) => Error::invalid("invalid_archive", format!("the archive cannot be used: {why}")),
            Wrong::TooLarge(why) => Error::invalid("archive_too_large", format!("the archive holds too much: {why}")),
        }
    }
}

/// So much is gathered before it is checked.
const GATHERED: usize = 256 << 10;

/// An archive that arrives piece by piece.
pub(crate) struct Streamed {
    /// Absent only while a thread has it, or after it has panicked.
    checked: Option<Checked>,
    gathered: BytesMut,
}

impl Streamed {
    pub(crate) fn new(limits: Limits) -> Self {
        Streamed { checked: Some(Checked::new(limits)), gathered: BytesMut::new() }
    }

    /// Takes the next piece. What is wrong with it may be told only by a later call.
    pub(crate) async fn push(&mut self, piece: Bytes) -> Result<()> {
        self.gathered.extend_from_slice(&piece);
        match self.gathered.len() < GATHERED {
            true => Ok(()),
            false => self.check(false).await,
        }
    }

    /// That was all.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.check(true).await
    }

    async fn check(&mut self, is_all: bool) -> Result<()> {
        let data = self.gathered.split().freeze();
        let lost = || Error::internal(std::io::Error::other("the check of an archive came to no end"));
        let mut checked = self.checked.take().ok_or_else(lost)?;
        let work = tokio::task::spawn_blocking(move || {
            let mut result = checked.push(&data);
            if is_all {
                result = result.and_then(|()| checked.finish());
            }
            (checked, result)
        });
        let (checked, result) = work.await.map_err(Error::internal)?;
        self.checked = Some(checked);
        Ok(result?)
    }
}

/// What has been seen of an archive.
struct Checked {
    decoder: GzDecoder<Entries>,
    has_begun: bool,
}

impl Checked {
    fn new(limits: Limits) -> Self {
        Checked { decoder: GzDecoder::new(Entries::new(limits)), has_begun: false }
    }

    fn push(&mut self, mut data: &[u8]) -> std::result::Result<(), Wrong> {
        self.has_begun |= !data.is_empty();
        while !data.is_empty() {
            match self.decoder.write(data) {
                Ok(0) => return Err(Wrong::Invalid("something follows after its end".to_owned())),
                Ok(taken) => data = &data[taken..],
                Err(error) => return Err(self.why(&error)),
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> std::result::Result<(), Wrong> {
        if !self.has_begun {
            return Err(Wrong::Invalid("it is empty".to_owned()));
        }
        if let Err(error) = self.decoder.try_finish() {
            return Err(self.why(&error));
        }
        self.decoder.get_ref().finish()
    }

    /// What a failure of the decoder means: the entries say what is wrong with them, all else is about the compression.
    fn why(&mut self, error: &std::io::Error) -> Wrong {
        let wrong = self.decoder.get_mut().wrong();
        wrong.unwrap_or_else(|| Wrong::Invalid(format!("it is not compressed by gzip, or was cut off ({error})")))
    }
}
