//! MD5 of one body, or of several in parallel.
//!
//! A step of MD5 depends on the previous step, so a core that hashes one body is mostly idle. Bodies that arrive at the
//! same time are hashed together in the lanes of the vector unit, several times as fast in total.

use super::block::compress;
use super::lanes::{LANES, Lanes};

const BLOCK: usize = 64;

/// The MD5 of the bytes of a body so far.
pub(super) struct Md5 {
    state: [u32; 4],
    /// The bytes that do not fill a block yet.
    tail: [u8; BLOCK],
    tail_bytes: usize,
    bytes: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Md5 { state, tail: [0; BLOCK], tail_bytes: 0, bytes: 0 }
    }
}

impl Md5 {
    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let blocks = self.buffer_partial_blocks(bytes);
        compress(&mut self.state, blocks);
    }

    /// Returns the MD5 of all bytes.
    pub(super) fn finish(mut self) -> [u8; 16] {
        let bits = self.bytes.wrapping_mul(8).to_le_bytes();
        let mut padding = [0; 2 * BLOCK];
        padding[0] = 0x80;
        // One byte and the length must fit after the tail; the padding ends with a block.
        let length = if self.tail_bytes < 56 { BLOCK } else { 2 * BLOCK } - self.tail_bytes;
        padding[length - 8..length].copy_from_slice(&bits);
        self.update(&padding[..length]);
        let mut sum = [0; 16];
        for (bytes, word) in sum.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        sum
    }

    /// Completes the tail, keeps the start of a new one, and returns the whole blocks between them. They must be added
    /// before anything else.
    fn buffer_partial_blocks<'bytes>(&mut self, mut bytes: &'bytes [u8]) -> &'bytes [[u8; BLOCK]] {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        if self.tail_bytes > 0 {
            let taken = bytes.len().min(BLOCK - self.tail_bytes);
            self.tail[self.tail_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.tail_bytes += taken;
            bytes = &bytes[taken..];
            if self.tail_bytes < BLOCK {
                return &[];
            }
            compress(&mut self.state, &[self.tail]);
        }
        let (blocks, rest) = bytes.as_chunks();
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_bytes = rest.len();
        blocks
    }
}

/// Adds the next bytes of several bodies.
pub(super) fn update_many(bodies: Vec<(&mut Md5, &[u8])>) {
    let mut left: Vec<_> =
        bodies.into_iter().map(|(md5, bytes)| (md5.buffer_partial_blocks(bytes), &mut md5.state)).collect();
    let lanes = Lanes::detect();
    loop {
        left.retain(|(blocks, _)| !blocks.is_empty());
        match (&lanes, left.len()) {
            (_, 0) => return,
            // The lanes are slower than a core: a single body does not fill them.
            (None, _) | (_, 1) => {
                for (blocks, state) in &mut left {
                    compress(state, std::mem::take(blocks));
                }
            }
            (Some(lanes), _) => {
                let bodies = LANES.min(left.len());
                let together = &mut left[..bodies];
                let blocks = together.iter().map(|(blocks, _)| blocks.len()).min().unwrap_or(0);
                // Lanes without a body hash the first one again, and their results are ignored.
                let data = std::array::from_fn(|lane| &together[lane % bodies].0[..blocks]);
                let mut states = std::array::from_fn(|lane| *together[lane % bodies].1);
                lanes.compress(&mut states, data);
                for ((rest, state), counted) in together.iter_mut().zip(states) {
                    *rest = &rest[blocks..];
                    **state = counted;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares bodies of many lengths, in pieces of many lengths, with a crate that hashes one body at a time.
    #[test]
    fn parallel_md5_equals_sequential() {
        use md5::Digest;
        let lengths = [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000, 4096, 100_000, 100_001, 8191, 77_777];
        for count in 1..=lengths.len() {
            let bodies: Vec<Vec<u8>> = lengths[..count]
                .iter()
                .enumerate()
                .map(|(body, length)| (0..*length).map(|at: usize| (at * 31 + at / 251 + body * 7) as u8).collect())
                .collect();
            for piece in [1, 63, 64, 1000, 40_000] {
                // Single bytes of a long body would take long and show nothing more.
                let bodies: Vec<_> = bodies.iter().map(|body| &body[..body.len().min(piece * 300)]).collect();
                let mut counted: Vec<Md5> = bodies.iter().map(|_| Md5::default()).collect();
                for at in (0..100_001).step_by(piece).take(300) {
                    let pieces = bodies.iter().map(|body| &body[at.min(body.len())..(at + piece).min(body.len())]);
                    update_many(counted.iter_mut().zip(pieces).collect());
                }
                for (md5, body) in counted.into_iter().zip(bodies) {
                    assert_eq!(
                        md5.finish(),
                        <[u8; 16]>::from(md5::Md5::digest(body)),
                        "{count} {piece} {}",
                        body.len()
                    );
                }
            }
        }
    }
}
