//! The checksum of a table: a SHA-256 over its rows in the order of their keys. Both databases compute the same one.

use sha2::{Digest as _, Sha256};

use crate::db::Param;
use crate::db::whole::Values;

/// How many hexadecimal digits of a checksum are shown. They guard against faults, not against attacks.
const SHOWN_DIGITS: usize = 32;

/// The checksum of the rows so far.
#[derive(Default)]
pub(super) struct Checksum {
    hasher: Sha256,
    pub(super) rows: u64,
}

impl Checksum {
    /// Adds rows. Each value has its kind and its length before it, so that no two tables read alike.
    pub(super) fn add(&mut self, rows: &[Values]) {
        self.rows += rows.len() as u64;
        for value in rows.iter().flatten() {
            match value.as_param() {
                Param::Null => self.hasher.update([0]),
                Param::Integer(number) => {
                    self.hasher.update([1]);
                    self.hasher.update(number.to_le_bytes());
                }
                Param::Text(text) => self.add_bytes(2, text.as_bytes()),
                Param::Bytes(bytes) => self.add_bytes(3, bytes),
            }
        }
    }

    fn add_bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.hasher.update([kind]);
        self.hasher.update((bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
    }

    /// The checksum in hexadecimal.
    pub(super) fn finish(self) -> String {
        let mut digits = hex::encode(self.hasher.finalize());
        digits.truncate(SHOWN_DIGITS);
        digits
    }
}
