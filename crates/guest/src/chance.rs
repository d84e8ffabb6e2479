//! Chance for names that nobody should guess.

use std::io;
use std::io::Read as _;

/// Random letters and digits, from the kernel.
pub(crate) fn letters(count: usize) -> io::Result<String> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = vec![0; count];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}
