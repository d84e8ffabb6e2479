//! The S3 protocol, in this process: every call is signed and passes the whole service.

mod authorization;
mod buckets;
mod call_limits;
mod conditions;
mod copies;
mod harness;
mod hosts;
mod listing;
mod multipart;
mod objects;
mod old_urls;
mod operations;
mod reading;
mod refusals;
mod regions;
mod revocation;
mod s3s_behaviour;
mod settings;
mod signer;
mod tagging;
mod versions;
