//! What one process has to do with a device, and how it is called inside, as its directory in `/proc` tells.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::local::mount_tables;

/// As much is kept of the name of a program.
const MAX_NAME: usize = 32;

/// Whether a process uses the device. What cannot be read is not there any more.
pub(super) fn uses(process: &Path, device: u64, namespace: Option<&Path>, left: &mut usize) -> bool {
    let on_it = |path: PathBuf| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    if ["cwd", "root", "exe"].iter().any(|name| on_it(process.join(name))) {
        return true;
    }
    for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if on_it(descriptor.path()) {
            return true;
        }
    }
    let mapped = format!("{:02x}:{:02x}", major(device), minor(device));
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    if maps.split(|byte| *byte == b'\n').any(|line| field(line, 3) == Some(mapped.as_bytes())) {
        return true;
    }
    // One with mounts of its own has the volume among them even if it does nothing with it.
    let elsewhere = fs::read_link(process.join("ns/mnt")).is_ok_and(|own| Some(own.as_path()) != namespace);
    let table = if elsewhere { fs::read(process.join("mountinfo")).unwrap_or_default() } else { Vec::new() };
    mount_tables::parse(&table).any(|mount| mount.device == device)
}

fn field(line: &[u8], number: usize) -> Option<&[u8]> {
    line.split(|byte| *byte == b' ').nth(number)
}

/// Whether a process is in a control group, or in one below it.
pub(super) fn is_in(process: &Path, group: &Path) -> bool {
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|own| Path::new(own).starts_with(group))
}

/// The number by which a process is known in the innermost of its namespaces.
pub(super) fn number_inside(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The name of a program, of which only plain characters are kept: who is inside chooses it.
pub(super) fn program(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+:@".contains(byte);
    let name: String = name.into_iter().filter(plain).take(MAX_NAME).map(char::from).collect();
    if name.is_empty() { "a program".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_an_open_file_are_uses() {
        let own = Path::new("/proc/self");
        let [disk, files] = ["/proc/self/exe", "/proc/self/stat"].map(|path| fs::metadata(path).unwrap().dev());
        let namespace = fs::read_link(own.join("ns/mnt")).ok();
        assert!(uses(own, disk, namespace.as_deref(), &mut 1_000), "it runs from there");
        let _open = fs::File::open("/proc/self/stat").unwrap();
        assert!(uses(own, files, namespace.as_deref(), &mut 1_000), "a file is open there");
        assert!(!uses(own, u64::MAX, namespace.as_deref(), &mut 1_000));
        assert_eq!(number_inside(own), Some(std::process::id()));
    }

    #[test]
    fn names_are_plain() {
        let directory = tempfile::tempdir().unwrap();
        for (name, kept) in [("python3\n", "python3"), ("\u{1b}[2J(x) y", "2Jxy"), ("\n", "a program")] {
            fs::write(directory.path().join("comm"), name).unwrap();
            assert_eq!(program(directory.path()), kept);
        }
    }
}
