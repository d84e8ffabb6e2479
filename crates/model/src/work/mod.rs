//! What is done on clusters and for callers: jobs with their files, and durable requests.

pub mod job_configs;
pub mod jobs;
pub mod requests;
