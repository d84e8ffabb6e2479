//! From the configuration to an engine that is open: what is checked first, what is opened and in which order, and what
//! is waited for. Start reading at [`waiting`].

pub(crate) mod check;
pub(crate) mod driver;
mod guest;
pub(crate) mod host_binding;
pub(in crate::serve) mod opening;
pub(in crate::serve) mod plain_http;
pub(in crate::serve) mod waiting;
