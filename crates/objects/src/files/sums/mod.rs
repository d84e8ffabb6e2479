//! The sums of bodies: which are requested, how they are computed, and the threads that compute them.
//!
//! Nothing here knows files. [`Totals`] computes the sums of one body; [`Hashers`] computes those of many at once,
//! beside the tasks that receive and write them.

mod block;
mod hashers;
mod lanes;
mod md5;

use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme};
use sha1::Digest;

pub(super) use hashers::{BodySums, Hashers};
use md5::Md5;

/// The requested sums of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sums {
    pub md5: bool,
    pub crc32: bool,
    pub crc32c: bool,
    pub crc64nvme: bool,
    pub sha1: bool,
    pub sha256: bool,
}

/// The requested sums of a body. Numbers are in big-endian order, as S3 writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) struct Digests {
    pub(super) md5: Option<[u8; 16]>,
    pub(super) crc32: Option<[u8; 4]>,
    pub(super) crc32c: Option<[u8; 4]>,
    pub(super) crc64nvme: Option<[u8; 8]>,
    pub(super) sha1: Option<[u8; 20]>,
    pub(super) sha256: Option<[u8; 32]>,
}

/// The sums of the bytes of a body so far.
pub(super) struct Totals {
    md5: Option<Md5>,
    crc32: Option<crc_fast::Digest>,
    crc32c: Option<crc_fast::Digest>,
    crc64nvme: Option<crc_fast::Digest>,
    sha1: Option<sha1::Sha1>,
    sha256: Option<sha2::Sha256>,
}

impl Totals {
    /// The sums of an empty body.
    pub(super) fn new(wanted: Sums) -> Self {
        let crc = |wanted: bool, algorithm| wanted.then(|| crc_fast::Digest::new(algorithm));
        Totals {
            md5: wanted.md5.then(Md5::default),
            crc32: crc(wanted.crc32, Crc32IsoHdlc),
            crc32c: crc(wanted.crc32c, Crc32Iscsi),
            crc64nvme: crc(wanted.crc64nvme, Crc64Nvme),
            sha1: wanted.sha1.then(sha1::Sha1::new),
            sha256: wanted.sha256.then(sha2::Sha256::new),
        }
    }

    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.update_others(bytes);
    }

    /// Adds the next bytes of several bodies and computes their MD5s in parallel.
    fn update_many(bodies: &mut [(&mut Totals, &[u8])]) {
        for (totals, bytes) in bodies.iter_mut() {
            totals.update_others(bytes);
        }
        let wanting = bodies.iter_mut().filter_map(|(totals, bytes)| totals.md5.as_mut().map(|md5| (md5, *bytes)));
        md5::update_many(wanting.collect());
    }

    fn update_others(&mut self, bytes: &[u8]) {
        for crc in [&mut self.crc32, &mut self.crc32c, &mut self.crc64nvme].into_iter().flatten() {
            crc.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    /// Returns the sums of all bytes.
    pub(super) fn finish(self) -> Digests {
        // A CRC of 32 bits is in the lower half of the number.
        let short = |crc: crc_fast::Digest| (crc.finalize() as u32).to_be_bytes();
        Digests {
            md5: self.md5.map(Md5::finish),
            crc32: self.crc32.map(short),
            crc32c: self.crc32c.map(short),
            crc64nvme: self.crc64nvme.map(|crc| crc.finalize().to_be_bytes()),
            sha1: self.sha1.map(|sha| sha.finalize().into()),
            sha256: self.sha256.map(|sha| sha.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published check values for "123456789" and for empty input.
    #[test]
    fn sums_match_check_values() {
        let all = Sums { md5: true, crc32: true, crc32c: true, crc64nvme: true, sha1: true, sha256: true };
        let mut totals = Totals::new(all);
        totals.update(b"1234");
        totals.update(b"56789");
        let digests = totals.finish();
        assert_eq!(hex::encode(digests.md5.unwrap()), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(hex::encode(digests.crc32.unwrap()), "cbf43926");
        assert_eq!(hex::encode(digests.crc32c.unwrap()), "e3069283");
        assert_eq!(hex::encode(digests.crc64nvme.unwrap()), "ae8b14860a799888");
        assert_eq!(hex::encode(digests.sha1.unwrap()), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert_eq!(
            hex::encode(digests.sha256.unwrap()),
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
        let nothing = Totals::new(all).finish();
        assert_eq!(hex::encode(nothing.md5.unwrap()), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(nothing.crc32, Some([0; 4]));
        assert_eq!(Totals::new(Sums::default()).finish(), Digests::default());
    }
}
