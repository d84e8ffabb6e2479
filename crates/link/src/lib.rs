//! The protocol between the engine and the guest inside an instance: versioned messages over any byte stream.
//!
//! The engine always connects to the guest, never the other way round, and one stream has one [`Purpose`]: the first
//! message names it, and the first message of the guest is its [`Reply`]. What follows depends on the purpose. There
//! is no multiplexing, because a stream is cheap and has its own flow control. Each side treats the messages of the
//! other as untrusted: everything has a limit, and a message that cannot be parsed ends the stream.
//!
//! This crate depends on no other crate of Tarn. Start reading at [`Purpose`]; [`frames`] is the wire format,
//! [`opening`] opens a stream on either side, and [`relay`] carries a connection over one.

pub mod frames;
mod jobs;
mod messages;
pub mod opening;
pub mod relay;

pub use frames::{Frame, Reader, Writer};
pub use jobs::{FromJob, FromOutputs, JobEnd, JobOrder, KnownJob, OutputsOrder, ToJob};
pub use messages::Image;
pub use messages::{
    Configuration, Endpoint, FromGuest, Health, Program, Pty, Purpose, Reply, Session, ToGuest, Window,
};

/// The protocol version of this build. A guest outlives restarts and upgrades of the engine, so an engine must still
/// support the versions before its own.
pub const VERSION: u16 = 1;

/// Why a stream failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error("the stream broke: {0}")]
    Stream(#[from] std::io::Error),
    /// The other side violated the protocol.
    #[error("the other side violated the protocol: {0}")]
    Protocol(String),
    /// The other side refused.
    #[error("{0}")]
    Refused(String),
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A byte stream that can carry a link.
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}
