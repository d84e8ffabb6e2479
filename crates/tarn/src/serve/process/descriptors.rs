//! The limit of open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximum that is set. Child processes that iterate over all descriptors would be slow with more.
const MAX_DESCRIPTORS: u64 = 1 << 20;

/// Raises the soft limit to the hard limit. The usual soft limit is far lower, every connection of a client needs one
/// descriptor, and every connection from inside an instance needs three.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(MAX_DESCRIPTORS, |maximum| maximum.min(MAX_DESCRIPTORS));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
