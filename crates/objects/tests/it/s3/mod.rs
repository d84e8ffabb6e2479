//! S3 as clients speak it, in this process: every call is signed and goes through the whole service.

mod authorization;
mod buckets;
mod conditions;
mod copies;
mod harness;
mod hosts;
mod listing;
mod multipart;
mod objects;
mod operations;
mod reading;
mod signer;
mod tagging;
mod versions;
