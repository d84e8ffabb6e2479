//! The packet format: a length, a kind, and fields of numbers and strings, in big-endian order.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::MAX_PACKET;

/// A packet with missing or invalid fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Returns the first packet of the input without its length, if it is complete.
pub(super) fn next_packet(input: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > MAX_PACKET {
        return Err(io::Error::other(format!("a packet of {length} bytes is not allowed")));
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

    /// Reads a path; an empty one is the current directory.
    pub(super) fn path(&mut self) -> Result<&'a Path, Malformed> {
        let bytes = self.string()?;
        if bytes.contains(&0) {
            return Err(Malformed);
        }
        Ok(Path::new(if bytes.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(bytes) }))
    }
}

/// Writes one packet at the end of a buffer; [`Packet::end`] fills in its length.
pub(super) struct Packet<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Packet<'a> {
    /// Starts a packet. All packets except the first carry the id of their request.
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

    /// Returns the length of the packet so far.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Adds a string that `fill` writes, and ends the packet; `fill` returns its length. On an error, or with length 0,
    /// the packet is removed.
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

    /// A packet is returned only when it is complete.
    #[test]
    fn next_packet_waits_for_whole_packet() {
        assert_eq!(next_packet(&[0, 0, 0]).unwrap(), None);
        assert_eq!(next_packet(&[0, 0, 0, 2, 7]).unwrap(), None);
        assert_eq!(next_packet(&[0, 0, 0, 2, 7, 8, 9]).unwrap(), Some(&[7, 8][..]));
        assert!(next_packet(&[0xff; 8]).is_err());
        assert!(next_packet(&[0; 8]).is_err());
    }

    /// Fields never read beyond the packet.
    #[test]
    fn fields_stay_inside_the_packet() {
        assert_eq!(Fields(&[0, 0, 0, 9, 1]).string(), Err(Malformed));
        assert_eq!(Fields(&[0, 0]).number(), Err(Malformed));
        assert_eq!(Fields(&[0, 0, 0, 1, 0]).path(), Err(Malformed));
        assert_eq!(Fields(&[0, 0, 0, 0]).path(), Ok(Path::new(".")));
    }
}
