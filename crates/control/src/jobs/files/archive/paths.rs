//! Which paths may stand in an archive, and where links may point to.

/// How long a path may be, and one name in it.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// The names in a path that is relative and clean; a `./` before it is nothing, and a directory may end with a slash.
pub(super) fn parts(path: &[u8], is_directory: bool) -> std::result::Result<Vec<&[u8]>, &'static str> {
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

/// Whether a symbolic link that lies so deep points into the archive.
pub(super) fn points_inside(target: &[u8], depth: usize) -> std::result::Result<(), &'static str> {
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
        return Err("is a symbolic link to nothing that could be");
    }
    if target.starts_with(b"/") {
        return Err("is a symbolic link to an absolute path; leave it out by `ignore`, or make it relative");
    }
    let is_up = |part: &&[u8]| *part == b"..";
    let ups = target.split(|byte| *byte == b'/').take_while(is_up).count();
    if ups > depth {
        return Err("is a symbolic link to something outside of it; leave it out by `ignore`");
    }
    match target.split(|byte| *byte == b'/').skip(ups).any(|part| is_up(&part)) {
        true => Err("is a symbolic link with '..' in the middle"),
        false => Ok(()),
    }
}

/// By which a path is recognised.
pub(super) fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
        hasher.update(b"/");
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}

/// A path fit to be told: bounded and without control characters.
pub(super) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(200)]);
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("'{clean}'")
}
