//! The kernel's table of the mounts in a namespace (`mountinfo`). It is read as bytes, because the tenant chooses the
//! names of directories.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::makedev;
use tarn_model::ids::VolumeId;

use crate::local::host::processes::Process;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::local) struct Mount {
    /// The number of its device, as `st_dev` of its files shows it.
    pub(in crate::local) device: u64,
    /// The mount point as a process in the namespace sees it.
    pub(in crate::local) path: PathBuf,
    /// The type of the filesystem.
    pub(in crate::local) kind: Vec<u8>,
}

impl Mount {
    /// The volume that is mounted here. A tenant can move a mount point with its parent directories, but can neither
    /// rename it nor mount anything, so a filesystem of that type and name was mounted by the driver. It is recognized
    /// even when the file of the volume no longer exists.
    pub(in crate::local) fn volume(&self) -> Option<VolumeId> {
        let name = self.path.file_name()?.to_str()?;
        if self.kind == b"xfs" { name.parse().ok() } else { None }
    }
}

/// The mounts in the namespace of a process; `None` when it has ended.
pub(in crate::local) fn mounts_of(process: &Process) -> io::Result<Option<Vec<Mount>>> {
    let table = fs::read(format!("/proc/{}/mountinfo", process.pid));
    // Checked only now: before, the pid could still have been reused by another process.
    if !process.alive()? || table.as_ref().is_err_and(is_process_gone) {
        return Ok(None);
    }
    Ok(Some(parse_mounts(&table?).collect()))
}

/// Returns whether an error means that a process no longer has namespaces. It loses them shortly before it is seen as
/// dead, and the kernel then reports an invalid argument.
pub(in crate::local) fn is_process_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EINVAL))
}

/// Parses a table; lines that are not understood are skipped.
pub(in crate::local) fn parse_mounts(table: &[u8]) -> impl Iterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_mount)
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = makedev(major.parse().ok()?, minor.parse().ok()?);
    let path = PathBuf::from(OsString::from_vec(unescape_octal(fields.nth(1)?)));
    // Any number of optional fields may follow; a dash ends them.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?.to_vec();
    Some(Mount { device, path, kind })
}

/// The kernel writes some characters as a backslash and three octal digits.
fn unescape_octal(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if byte == b'\\' => {
                plain.push(code);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escaped and invalid characters are decoded; lines that make no sense are skipped.
    #[test]
    fn parser_handles_odd_names_and_lines() {
        let table = b"36 35 7:3 / /mnt/s-7k2m9q4x0abc rw,nosuid - xfs /dev/loop3 rw\n\
            37 35 98:0 /a\\040b /odd\\040\\134\\012\xff rw,relatime shared:1 master:2 - ext4 /dev/x rw\n\
            nonsense\n1 2 x:y / / rw - a b c\n\n";
        let mounts: Vec<_> = parse_mounts(table).collect();
        let [one, other] = mounts.as_slice() else { panic!("{mounts:?}") };
        assert_eq!((one.device, one.path.to_str()), (makedev(7, 3), Some("/mnt/s-7k2m9q4x0abc")));
        assert_eq!(one.volume().unwrap().as_str(), "s-7k2m9q4x0abc");
        assert_eq!(other.volume(), None);
        assert_eq!(other.path.as_os_str().as_encoded_bytes(), b"/odd \\\n\xff");
        assert_eq!((other.device, other.kind.as_slice()), (makedev(98, 0), b"ext4".as_slice()));
    }

    /// The root of this process is among its mounts.
    #[test]
    fn mounts_of_reads_own_root() {
        let own = Process::find(std::process::id()).unwrap().unwrap();
        assert!(mounts_of(&own).unwrap().unwrap().iter().any(|mount| mount.path.as_os_str() == "/"));
        assert_eq!(mounts_of(&Process { started: own.started + 1, ..own }).unwrap(), None);
    }
}
