//! The protocol between the engine and the guest inside an instance: versioned messages over any byte stream.
//!
//! The engine dials, never the guest, and one stream has one [`Purpose`]: it is named in the first message, and the guest's
//! first message is its [`Answer`]. What follows belongs to the purpose. There is no multiplexing, because a stream costs
//! nothing and brings its own flow control. Each side treats what the other says as untrusted: everything has a limit, and
//! what cannot be understood ends the stream.
//!
//! This crate knows nobody. Start reading at [`Purpose`]; [`frames`] is how messages look on the wire, [`opening`] how
//! a stream begins on either side, and [`pump`] how a connection is carried over one.

pub mod frames;
mod image;
mod jobs;
mod messages;
pub mod opening;
pub mod pump;

pub use frames::{Frame, Reader, Writer};
pub use image::Image;
pub use jobs::{FromJob, FromOutputs, JobEnd, JobOrder, KnownJob, OutputsOrder, ToJob};
pub use messages::{
    Answer, Configuration, Endpoint, FromGuest, Health, Program, Pty, Purpose, Session, ToGuest, Window,
};

/// The version that this build speaks. A guest outlives restarts and upgrades of the engine, so an engine must go on speaking
/// the versions before its own.
pub const VERSION: u16 = 1;

/// Why a stream ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes stopped coming or going.
    #[error("the stream broke: {0}")]
    Stream(#[from] std::io::Error),
    /// The other side does not keep to the protocol.
    #[error("the other side does not keep to the protocol: {0}")]
    Protocol(String),
    /// The other side cannot or does not want to.
    #[error("{0}")]
    Refused(String),
}

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Any stream that a link can run over.
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}
