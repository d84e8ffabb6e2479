//! Files with public SSH keys.

use std::path::Path;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::files;
use crate::files::paths;

/// Reads a public key. A private key is refused, because it must not leave this host.
pub(crate) fn read_public_key(ctx: &Context<'_>, path: &Path) -> Result<String> {
    let path = paths::resolve_path(ctx.environment, path);
    let key = files::read_text(&path)?;
    if key.contains("PRIVATE KEY") {
        return Err(Failure::usage(format!(
            "{} is a private key; give the public key, whose file name ends with .pub",
            path.display()
        )));
    }
    Ok(key.trim().to_owned())
}
