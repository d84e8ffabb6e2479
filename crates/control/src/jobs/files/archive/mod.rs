//! Checking an archive while it arrives: a tar archive compressed by gzip, with clean paths and without entries that
//! could do harm.
//!
//! Nothing is unpacked or stored here. [`entries`] checks the tar archive. This file decompresses it, on blocking
//! threads: a few kilobytes can expand to many megabytes.

mod entries;
mod paths;
#[cfg(test)]
mod tests;

use std::io::Write;

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;

use self::entries::EntryChecker;
use crate::{Error, Result};

/// The limits of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) files: u64,
    pub(crate) unpacked_bytes: u64,
}

/// What is wrong with an archive, for the client that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ArchiveError {
    /// It is not an archive, or has an entry that is not allowed.
    Invalid(String),
    /// It exceeds a limit.
    TooLarge(String),
}

impl From<ArchiveError> for Error {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Invalid(why) => {
                Error::invalid("invalid_archive", format!("the archive cannot be used: {why}"))
            }
            ArchiveError::TooLarge(why) => {
                Error::invalid("archive_too_large", format!("the archive is too large: {why}"))
            }
        }
    }
}

/// How much larger than the archive its contents may be, beyond the first bytes, which may be anything. Files of
/// zeros are compressed a thousandfold, and nothing that a job needs is.
const MAX_RATIO: u64 = 200;
const FREE_RATIO_BYTES: u64 = 256 << 20;

/// How many bytes are collected before they are checked.
const CHECK_BATCH_BYTES: usize = 256 << 10;

/// Checks an archive that arrives piece by piece.
pub(crate) struct ArchiveChecker {
    /// `None` only while a thread uses it, or after that thread has panicked.
    checked: Option<GzipChecker>,
    pending: BytesMut,
}

impl ArchiveChecker {
    pub(crate) fn new(limits: Limits) -> Self {
        ArchiveChecker { checked: Some(GzipChecker::new(limits)), pending: BytesMut::new() }
    }

    /// Adds the next piece. Its errors may be returned by a later call.
    pub(crate) async fn push(&mut self, piece: Bytes) -> Result<()> {
        self.pending.extend_from_slice(&piece);
        if self.pending.len() < CHECK_BATCH_BYTES { Ok(()) } else { self.check_pending(false).await }
    }

    /// Checks the rest, and that the archive is complete.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.check_pending(true).await
    }

    async fn check_pending(&mut self, is_all: bool) -> Result<()> {
        let data = self.pending.split().freeze();
        let lost = || Error::internal(std::io::Error::other("the check of an archive did not finish"));
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

/// Decompresses an archive into the check of its entries.
struct GzipChecker {
    decoder: GzDecoder<EntryChecker>,
    has_begun: bool,
    /// How many compressed bytes have arrived.
    packed: u64,
}

impl GzipChecker {
    fn new(limits: Limits) -> Self {
        GzipChecker { decoder: GzDecoder::new(EntryChecker::new(limits)), has_begun: false, packed: 0 }
    }

    fn push(&mut self, mut data: &[u8]) -> std::result::Result<(), ArchiveError> {
        self.has_begun |= !data.is_empty();
        while !data.is_empty() {
            match self.decoder.write(data) {
                Ok(0) => return Err(ArchiveError::Invalid("data follows after its end".to_owned())),
                Ok(taken) => {
                    data = &data[taken..];
                    self.packed += taken as u64;
                    self.decoder.get_mut().check_ratio(self.packed)?;
                }
                Err(error) => return Err(self.decoder_error(&error)),
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> std::result::Result<(), ArchiveError> {
        if !self.has_begun {
            return Err(ArchiveError::Invalid("it is empty".to_owned()));
        }
        if let Err(error) = self.decoder.try_finish() {
            return Err(self.decoder_error(&error));
        }
        self.decoder.get_ref().finish()
    }

    /// Returns what an error of the decoder means: an error of the entries, or else of the compression.
    fn decoder_error(&mut self, error: &std::io::Error) -> ArchiveError {
        let error_of_entries = self.decoder.get_mut().first_error();
        error_of_entries
            .unwrap_or_else(|| ArchiveError::Invalid(format!("it is not compressed by gzip, or was cut off ({error})")))
    }
}
