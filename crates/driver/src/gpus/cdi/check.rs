//! Adds what a specification asks for, and refuses what an instance must never get.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use super::specification::{ContainerEdits, DeviceNode, MountPoint};
use super::{Edits, Mount, Node, Unusable, specification};

/// The maximum length of a path.
pub(super) const MAX_PATH: usize = 4096;

/// The maximum number of edits of each kind, for all GPUs of an instance together.
const MAX_EACH: usize = 1024;

/// The maximum length of an environment variable.
const MAX_VALUE: usize = 4096;

/// Devices that every instance has.
const OWN_DEVICES: [&str; 11] =
    ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue"];

/// Where nothing of the host is mounted: the instance's own views of the kernel, its devices, and the guest.
const CLOSED: [&str; 5] = ["proc", "sys", "dev", ".tarn", "run/tarn"];

/// Adds what a specification asks for. `file` is its path, for the operator.
pub(super) fn add_edits(edits: &mut Edits, wanted: &ContainerEdits, file: &Path) -> Result<(), Unusable> {
    let explain = |why: Unusable| match why {
        Unusable::Absent(why) => Unusable::Absent(format!("{}: {why}", file.display())),
        why @ (Unusable::Wrong(_) | Unusable::Unnamed(_)) => Unusable::Wrong(format!("{}: {why}", file.display())),
    };
    wanted.env.iter().try_for_each(|line| add_variable(edits, line)).map_err(explain)?;
    wanted.device_nodes.iter().try_for_each(|wanted| add_node(edits, wanted)).map_err(explain)?;
    wanted.mounts.iter().try_for_each(|wanted| add_mount(edits, wanted)).map_err(explain)?;
    wanted.hooks.iter().try_for_each(|hook| specification::add_hook(edits, hook)).map_err(explain)?;
    let Edits { env, nodes, mounts, links, libraries } = edits;
    let most = [env.len(), nodes.len(), mounts.len(), links.len(), libraries.len()].into_iter().max();
    if most.is_some_and(|most| most > MAX_EACH) {
        Err(explain(Unusable::Wrong(format!("an instance would get more than {MAX_EACH} edits of one kind"))))
    } else {
        Ok(())
    }
}

fn add_variable(edits: &mut Edits, line: &str) -> Result<(), Unusable> {
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

fn add_node(edits: &mut Edits, wanted: &DeviceNode) -> Result<(), Unusable> {
    let path = absolute_path(&wanted.path)?;
    let below = path.strip_prefix("/dev").ok().and_then(|rest| rest.components().next());
    let first = below.and_then(|first| first.as_os_str().to_str());
    if first.is_none_or(|first| OWN_DEVICES.contains(&first)) {
        return Err(Unusable::Wrong(format!("{:?} is no place for a device of an instance", wanted.path)));
    }
    if !matches!(wanted.kind.as_deref(), None | Some("" | "c" | "u")) {
        return Err(Unusable::Wrong(format!(
            "{:?} is not a character device; instances get no other devices",
            wanted.path
        )));
    }
    let (major, minor) = match (wanted.major, wanted.minor) {
        (Some(major), Some(minor)) if major > 0 => device_number(major).zip(device_number(minor)),
        _ => host_device_numbers(&absolute_path(wanted.host_path.as_deref().unwrap_or(&wanted.path))?)?,
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

fn device_number(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number < 1 << 20)
}

/// Returns the device numbers of a device of the host.
fn host_device_numbers(path: &Path) -> Result<Option<(u32, u32)>, Unusable> {
    let found = fs::metadata(path).map_err(|error| Unusable::Absent(format!("{}: {error}", path.display())))?;
    let is_device = found.file_type().is_char_device();
    Ok(is_device.then(|| (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()))))
}

fn add_mount(edits: &mut Edits, wanted: &MountPoint) -> Result<(), Unusable> {
    let mount = Mount { from: absolute_path(&wanted.host_path)?, to: path_inside(&wanted.container_path)? };
    if !edits.mounts.contains(&mount) {
        edits.mounts.push(mount);
    }
    Ok(())
}

/// Checks a path in an instance at which a file of the host may appear.
pub(super) fn path_inside(text: &str) -> Result<PathBuf, Unusable> {
    let path = absolute_path(text)?;
    let relative = path.strip_prefix("/").unwrap_or(&path);
    if relative.as_os_str().is_empty() || CLOSED.iter().any(|closed| relative.starts_with(closed)) {
        Err(Unusable::Wrong(format!("nothing of the host may be at {text:?} in an instance")))
    } else {
        Ok(path)
    }
}

/// Checks that a path is absolute and has no `..`.
fn absolute_path(text: &str) -> Result<PathBuf, Unusable> {
    let path = Path::new(text);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(is_plain) && text.len() <= MAX_PATH && !text.contains('\0') {
        Ok(path.components().collect())
    } else {
        Err(Unusable::Wrong(format!("{text:?} is not an absolute path without '..'")))
    }
}
