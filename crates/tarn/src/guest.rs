//! The guest, as it was built with this program: the init of every instance.

/// The static binary.
pub(crate) const BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest"));
