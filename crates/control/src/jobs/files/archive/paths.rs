//! Which paths an archive may contain, and where its links may point.

/// How long a path may be, and how long one name in it.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// Splits a path that must be relative and clean. A leading `./` is ignored, and a directory may end with a slash.
pub(super) fn split_path(path: &[u8], is_directory: bool) -> std::result::Result<Vec<&[u8]>, &'static str> {
    if path.len() > MAX_PATH {
        return Err("has a path that is too long");
    }
    if path.contains(&0) {
        return Err("has a NUL in its path");
    }
    if path.starts_with(b"/") {
        return Err("has an absolute path");
    }
    let mut rest = path;
    while let Some(after) = rest.strip_prefix(b"./") {
        rest = after;
    }
    if is_directory {
        rest = rest.strip_suffix(b"/").unwrap_or(rest);
    }
    if rest == b"." || rest.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<&[u8]> = rest.split(|byte| *byte == b'/').collect();
    for part in &parts {
        match *part {
            b".." => return Err("has a path with '..' in it"),
            b"." | b"" => return Err("has a path that is not clean"),
            name if name.len() > MAX_NAME => return Err("has a name that is too long"),
            _ => {}
        }
    }
    Ok(parts)
}

/// Checks that a symbolic link at this depth points into the archive.
pub(super) fn check_link_target(target: &[u8], depth: usize) -> std::result::Result<(), &'static str> {
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
        return Err("is a symbolic link with an invalid target");
    }
    if target.starts_with(b"/") {
        return Err("is a symbolic link to an absolute path; exclude it by `ignore`, or make it relative");
    }
    let is_up = |part: &&[u8]| *part == b"..";
    let ups = target.split(|byte| *byte == b'/').take_while(is_up).count();
    if ups > depth {
        return Err("is a symbolic link to something outside of the archive; exclude it by `ignore`");
    }
    if target.split(|byte| *byte == b'/').skip(ups).any(|part| is_up(&part)) {
        Err("is a symbolic link with '..' in the middle")
    } else {
        Ok(())
    }
}

/// Returns a short hash that identifies a path.
pub(super) fn hash_path(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
        hasher.update(b"/");
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}

/// Formats a path for a message: bounded, and without control characters.
pub(super) fn display_path(path: &[u8]) -> String {
    format!("'{}'", tarn_base::plain(&String::from_utf8_lossy(path), 200))
}
