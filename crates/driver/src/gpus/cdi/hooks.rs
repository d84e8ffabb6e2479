//! Hooks of a specification. They are programs of the host that a container runtime would run as root around an instance that
//! somebody else filled. They are not run. What the known ones of NVIDIA do is little, and is done here in another way: links
//! to libraries are made, and the directories of libraries are told to the loader.

use std::path::PathBuf;

use super::specification::Hook;
use super::{Edits, Unusable, check};

/// Adds what a hook would do, as far as it is known.
pub(super) fn add(edits: &mut Edits, hook: &Hook) -> Result<(), Unusable> {
    let mut words = hook.args.iter().map(String::as_str);
    let known = words.by_ref().find(|word| ["create-symlinks", "update-ldcache"].contains(word));
    match known {
        Some("create-symlinks") => {
            for link in options("--link", words) {
                let Some((target, path)) = link.split_once("::") else { continue };
                let path = check::inside(path)?;
                if target.is_empty() || target.len() > check::MAX_PATH || target.contains('\0') {
                    return Err(Unusable::Wrong(format!("the link {link:?} has no sane target")));
                }
                edits.links.push((target.to_owned(), path));
            }
        }
        Some(_) => {
            for folder in options("--folder", words) {
                let folder: PathBuf = check::inside(folder)?;
                if !edits.libraries.contains(&folder) {
                    edits.libraries.push(folder);
                }
            }
        }
        None => tracing::debug!(?hook, "a hook of a CDI specification is not known, and not run"),
    }
    Ok(())
}

/// The values of an option that may come more than once, as `--name value` or `--name=value`.
fn options<'a>(name: &'static str, words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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
