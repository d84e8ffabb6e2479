//! Hooks of a specification. They are programs of the host that a container runtime would run as root around an
//! instance whose contents a tenant chose, so they are not run. The known hooks of NVIDIA do little, which is done here
//! in another way: links to libraries are created, and their directories are added to the loader's path.

use std::path::PathBuf;

use super::specification::Hook;
use super::{Edits, Unusable, check};

/// Adds the effect of a hook, if it is a known one.
pub(super) fn add_hook(edits: &mut Edits, hook: &Hook) -> Result<(), Unusable> {
    let mut words = hook.args.iter().map(String::as_str);
    let known = words.by_ref().find(|word| ["create-symlinks", "update-ldcache"].contains(word));
    match known {
        Some("create-symlinks") => {
            for link in option_values("--link", words) {
                let Some((target, path)) = link.split_once("::") else { continue };
                let path = check::path_inside(path)?;
                if target.is_empty() || target.len() > check::MAX_PATH || target.contains('\0') {
                    return Err(Unusable::Wrong(format!("the link {link:?} has no sane target")));
                }
                edits.links.push((target.to_owned(), path));
            }
        }
        Some(_) => {
            for folder in option_values("--folder", words) {
                let folder: PathBuf = check::path_inside(folder)?;
                if !edits.libraries.contains(&folder) {
                    edits.libraries.push(folder);
                }
            }
        }
        None => tracing::debug!(?hook, "an unknown hook of a CDI specification is not run"),
    }
    Ok(())
}

/// Returns the values of a repeatable option, as `--name value` or `--name=value`.
fn option_values<'a>(name: &'static str, words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut found, mut is_next) = (Vec::new(), false);
    for word in words {
        match word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => found.push(value),
            None if is_next => found.push(word),
            None => {}
        }
        is_next = word == name;
    }
    found
}
