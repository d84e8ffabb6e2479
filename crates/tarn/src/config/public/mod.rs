//! The addresses that clients are told, where they differ from those on which the engine listens.

mod s3;
mod ssh;

pub(crate) use s3::PublicS3;
pub(crate) use ssh::PublicSsh;
