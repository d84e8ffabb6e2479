//! How many files and connections this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this nobody needs, and programs that go through all numbers would take their time.
const MOST: u64 = 1 << 20;

/// Takes as many descriptors as the administrator allows: a shell gives far fewer than that, while every connection of a client
/// needs one, and every one from inside of an instance three.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(MOST, |maximum| maximum.min(MOST));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::warn!(%error, "the number of open files could not be raised");
    }
}
