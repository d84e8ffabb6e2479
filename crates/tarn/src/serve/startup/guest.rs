//! The guest that was built with this program: the init program of every instance.

/// The statically linked program, compressed with zstd. A `static`, because a `const` of this size was embedded once
/// per codegen unit.
pub(crate) static BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest.zst"));
