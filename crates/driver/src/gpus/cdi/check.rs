//! Takes over what a specification wants, and refuses what an instance must never get.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use super::specification::{ContainerEdits, DeviceNode, MountPoint};
use super::{Edits, Mount, Node, Unusable, hooks};

/// The longest path.
pub(super) const MAX_PATH: usize = 4096;

/// So many things of each kind an instance may get, by all of its GPUs together.
const MAX_EACH: usize = 1024;

/// The longest environment variable.
const MAX_VALUE: usize = 4096;

/// What every instance has there already.
const OWN_DEVICES: [&str; 11] =
    ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue"];

/// Where nothing of the host is shown: the instance's own views of the kernel, its devices, and the guest.
const CLOSED: [&str; 5] = ["proc", "sys", "dev", ".tarn", "run/tarn"];

/// Adds what a specification wants. `file` is where it is written, for the operator.
pub(super) fn add(edits: &mut Edits, wanted: &ContainerEdits, file: &Path) -> Result<(), Unusable> {
    let explain = |why: Unusable| match why {
        Unusable::Absent(why) => Unusable::Absent(format!("{}: {why}", file.display())),
        why @ (Unusable::Wrong(_) | Unusable::Unnamed(_)) => Unusable::Wrong(format!("{}: {why}", file.display())),
    };
    wanted.env.iter().try_for_each(|line| variable(edits, line)).map_err(explain)?;
    wanted.device_nodes.iter().try_for_each(|wanted| node(edits, wanted)).map_err(explain)?;
    wanted.mounts.iter().try_for_each(|wanted| mount(edits, wanted)).map_err(explain)?;
    wanted.hooks.iter().try_for_each(|hook| hooks::add(edits, hook)).map_err(explain)?;
    let Edits { env, nodes, mounts, links, libraries } = edits;
    let most = [env.len(), nodes.len(), mounts.len(), links.len(), libraries.len()].into_iter().max();
    match most.is_some_and(|most| most > MAX_EACH) {
        true => Err(explain(Unusable::Wrong(format!("an instance would get more than {MAX_EACH} things of a kind")))),
        false => Ok(()),
    }
}

fn variable(edits: &mut Edits, line: &str) -> Result<(), Unusable> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let split = line.split_once('=').filter(|(name, value)| {
        let is_name = !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
        is_name && value.len() <= MAX_VALUE && !value.contains(['\0', '\n', '\r'])
    });
    let (name, value) = split.ok_or_else(|| Unusable::Wrong(format!("{line:?} is not an environment variable")))?;
    edits.env.retain(|(other, _)| other != name);
    edits.env.push((name.to_owned(), value.to_owned()));
    Ok(())
}

fn node(edits: &mut Edits, wanted: &DeviceNode) -> Result<(), Unusable> {
    let path = normal(&wanted.path)?;
    let below = path.strip_prefix("/dev").ok().and_then(|rest| rest.components().next());
    let first = below.and_then(|first| first.as_os_str().to_str());
    if first.is_none_or(|first| OWN_DEVICES.contains(&first)) {
        return Err(Unusable::Wrong(format!("{:?} is no place for a device of an instance", wanted.path)));
    }
    if !matches!(wanted.kind.as_deref(), None | Some("" | "c" | "u")) {
        return Err(Unusable::Wrong(format!("{:?} is no character device, and instances get no others", wanted.path)));
    }
    let (major, minor) = match (wanted.major, wanted.minor) {
        (Some(major), Some(minor)) if major > 0 => number(major).zip(number(minor)),
        _ => on_host(&normal(wanted.host_path.as_deref().unwrap_or(&wanted.path))?)?,
    }
    .ok_or_else(|| Unusable::Wrong(format!("the numbers of {:?} are none of a device", wanted.path)))?;
    let access: String = match wanted.permissions.as_deref() {
        None | Some("") => "rw".into(),
        Some(text) => "rw".chars().filter(|right| text.contains(*right)).collect(),
    };
    let mode = wanted.file_mode.unwrap_or(0o666) & 0o777;
    let (uid, gid) = (wanted.uid.unwrap_or(0), wanted.gid.unwrap_or(0));
    if uid.max(gid) > u32::from(u16::MAX) || access.is_empty() {
        return Err(Unusable::Wrong(format!(
            "{:?} has an owner or permissions that an instance cannot have",
            wanted.path
        )));
    }
    let node = Node { path, major, minor, mode, uid, gid, access };
    match edits.nodes.iter().find(|other| other.path == node.path) {
        Some(other) if *other == node => Ok(()),
        Some(_) => Err(Unusable::Wrong(format!("{:?} would be two devices", wanted.path))),
        None => {
            edits.nodes.push(node);
            Ok(())
        }
    }
}

fn number(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number < 1 << 20)
}

/// The numbers of a device of the host.
fn on_host(path: &Path) -> Result<Option<(u32, u32)>, Unusable> {
    let found = fs::metadata(path).map_err(|error| Unusable::Absent(format!("{}: {error}", path.display())))?;
    let is_device = found.file_type().is_char_device();
    Ok(is_device.then(|| (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()))))
}

fn mount(edits: &mut Edits, wanted: &MountPoint) -> Result<(), Unusable> {
    let mount = Mount { from: normal(&wanted.host_path)?, to: inside(&wanted.container_path)? };
    if !edits.mounts.contains(&mount) {
        edits.mounts.push(mount);
    }
    Ok(())
}

/// A path in an instance where something of the host may be.
pub(super) fn inside(text: &str) -> Result<PathBuf, Unusable> {
    let path = normal(text)?;
    let relative = path.strip_prefix("/").unwrap_or(&path);
    match relative.as_os_str().is_empty() || CLOSED.iter().any(|closed| relative.starts_with(closed)) {
        true => Err(Unusable::Wrong(format!("nothing of the host may be at {text:?} in an instance"))),
        false => Ok(path),
    }
}

/// An absolute path that does not go back.
fn normal(text: &str) -> Result<PathBuf, Unusable> {
    let path = Path::new(text);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    match path.is_absolute() && path.components().all(is_plain) && text.len() <= MAX_PATH && !text.contains('\0') {
        true => Ok(path.components().collect()),
        false => Err(Unusable::Wrong(format!("{text:?} is not an absolute path without '..'"))),
    }
}
