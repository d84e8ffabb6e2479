//! What every call passes through before it reaches its endpoint, from the outside to the inside: `observe`,
//! `authenticate` with the rate limit of `limiter`, and `response_cache`.

pub(crate) mod authenticate;
pub(crate) mod limiter;
pub(crate) mod observe;
pub(crate) mod response_cache;
