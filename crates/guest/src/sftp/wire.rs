//! How packets look: a length, a kind, and fields of numbers and strings, the big end first.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::MAX_PACKET;

/// A packet that does not say what it must.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first packet of the input without its length, if all of it is there.
pub(super) fn packet(input: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > MAX_PACKET {
        return Err(io::Error::other(format!("a packet of {length} bytes cannot be")));
    }
    Ok(rest.get(..length))
}

/// Reads the fields of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u32, Malformed> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(super) fn long(&mut self) -> Result<u64, Malformed> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()? as usize;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(string)
    }

    /// A path; an empty one is where the user is.
    pub(super) fn path(&mut self) -> Result<&'a Path, Malformed> {
        let bytes = self.string()?;
        if bytes.contains(&0) {
            return Err(Malformed);
        }
        Ok(Path::new(if bytes.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(bytes) }))
    }
}

/// Writes one packet at the end of a buffer; its length is filled in at the end.
pub(super) struct Packet<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Packet<'a> {
    /// Begins a packet. All but the first of a conversation carry the number of their request.
    pub(super) fn new(buffer: &'a mut Vec<u8>, kind: u8, id: u32) -> Self {
        let start = buffer.len();
        buffer.extend([0; 4]);
        buffer.push(kind);
        buffer.extend(id.to_be_bytes());
        Packet { buffer, start }
    }

    pub(super) fn number(&mut self, number: u32) -> &mut Self {
        self.buffer.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, number: u64) -> &mut Self {
        self.buffer.extend(number.to_be_bytes());
        self
    }

    pub(super) fn string(&mut self, string: &[u8]) -> &mut Self {
        let length = u32::try_from(string.len()).expect("strings are shorter than a packet");
        self.number(length);
        self.buffer.extend(string);
        self
    }

    /// How long the packet is up to now.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// A string whose bytes are filled in by `fill`, which says how many it had; with an error, or with none at all, the
    /// packet is taken back.
    pub(super) fn fill<E>(self, most: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        let (at, start) = (self.buffer.len(), self.start);
        self.buffer.resize(at + 4 + most, 0);
        let filled = fill(&mut self.buffer[at + 4..]);
        let Ok(length @ 1..) = filled else {
            self.buffer.truncate(start);
            return filled;
        };
        self.buffer.truncate(at + 4 + length);
        self.buffer[at..at + 4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        self.end();
        Ok(length)
    }

    /// Ends the packet.
    pub(super) fn end(self) {
        let length = u32::try_from(self.buffer.len() - self.start - 4).expect("packets are short");
        self.buffer[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_whole() {
        assert_eq!(packet(&[0, 0, 0]).unwrap(), None);
        assert_eq!(packet(&[0, 0, 0, 2, 7]).unwrap(), None);
        assert_eq!(packet(&[0, 0, 0, 2, 7, 8, 9]).unwrap(), Some(&[7, 8][..]));
        assert!(packet(&[0xff; 8]).is_err());
        assert!(packet(&[0; 8]).is_err());
    }

    #[test]
    fn fields_never_reach_beyond_the_packet() {
        assert_eq!(Fields(&[0, 0, 0, 9, 1]).string(), Err(Malformed));
        assert_eq!(Fields(&[0, 0]).number(), Err(Malformed));
        assert_eq!(Fields(&[0, 0, 0, 1, 0]).path(), Err(Malformed));
        assert_eq!(Fields(&[0, 0, 0, 0]).path(), Ok(Path::new(".")));
    }
}
