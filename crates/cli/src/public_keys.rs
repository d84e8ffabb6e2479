//! Public SSH keys, as files have them.

use std::path::Path;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::{files, paths};

/// A public key. The private one beside it is a mistake that must not leave this machine.
pub(crate) fn read(ctx: &Context<'_>, path: &Path) -> Result<String> {
    let path = paths::expand(ctx.surroundings, path);
    let key = files::read(&path)?;
    if key.contains("PRIVATE KEY") {
        return Err(Failure::usage(format!(
            "{} is a private key; give the public one, which ends with .pub",
            path.display()
        )));
    }
    Ok(key.trim().to_owned())
}
