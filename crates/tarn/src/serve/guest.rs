//! The guest that was built with this program: the init program of every instance.

/// The statically linked program.
pub(crate) const BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest"));
