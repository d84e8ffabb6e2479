//! The volumes of a backup: clones of their files where the filesystem can, copies without the holes elsewhere.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::SeekFrom as Position;
use rustix::io::Errno;
use tarn_driver::local::restored_pool;
use tarn_model::ids::VolumeId;

use crate::backup::place::manifest::VolumeCopy;
use crate::backup::place::medium::Medium;
use crate::backup::place::sums::FileSum;

/// The bytes copied at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Copies the volumes into the local directory of a backup, and stores each before the next one is copied. Returns
/// them, and why others were left out.
pub(in crate::backup) async fn copy_volumes(
    pool: &Path,
    volumes: &[(VolumeId, bool)],
    (medium, name, staged): (&dyn Medium, &str, &Path),
) -> io::Result<(Vec<VolumeCopy>, Vec<String>)> {
    let (mut copied, mut left_out) = (Vec::new(), Vec::new());
    for (id, is_used) in volumes {
        let (file, source) = (VolumeCopy::file_name(id.as_str()), restored_pool::volume_file(pool, id));
        match copy_volume(&source, &staged.join(&file), *is_used) {
            Ok(true) => {
                copied.push(VolumeCopy { id: id.to_string(), file: FileSum::of(staged, &file)? });
                medium.store_early(name, staged, &file).await?;
            }
            Ok(false) => left_out.push(format!(
                "{id}: a cluster uses it, and only a filesystem that clones files, on which both the volumes and {} \
                 are, has its state of one moment; detach it, or copy its files in the cluster",
                medium.staging()
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => left_out.push(format!("{id}: it is missing")),
            Err(error) => return Err(error),
        }
    }
    Ok((copied, left_out))
}

/// Copies the file of a volume to a new file. A volume in use can only be cloned, which is one moment of it; returns
/// `false` if that is not possible, also because a cluster began to use it meanwhile.
pub(in crate::backup) fn copy_volume(from: &Path, to: &Path, is_used: bool) -> io::Result<bool> {
    let mut source = File::open(from)?;
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => {}
        Err(_) if is_used => {
            std::fs::remove_file(to)?;
            return Ok(false);
        }
        Err(_) if !copy_unchanged(&mut source, &mut target, copy_sparse)? => {
            std::fs::remove_file(to)?;
            return Ok(false);
        }
        Err(_) => {}
    }
    target.sync_all()?;
    Ok(true)
}

/// Copies a file, and returns whether it stayed as it was. A cluster may attach the volume at any time, and a copy of
/// several moments is a damaged filesystem.
fn copy_unchanged(
    source: &mut File,
    target: &mut File,
    copy: impl FnOnce(&mut File, &mut File) -> io::Result<()>,
) -> io::Result<bool> {
    let before = last_change(source)?;
    copy(source, target)?;
    Ok(last_change(source)? == before)
}

/// What differs after each write to a file.
fn last_change(file: &File) -> io::Result<(i64, i64, i64, i64, u64)> {
    let found = file.metadata()?;
    Ok((found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec(), found.len()))
}

/// Copies the data of a file, and leaves its holes out.
fn copy_sparse(source: &mut File, target: &mut File) -> io::Result<()> {
    let length = source.metadata()?.len();
    let mut buffer = vec![0; STEP_BYTES as usize];
    for (mut at, bytes) in data_ranges(source)? {
        let end = at + bytes;
        source.seek(SeekFrom::Start(at))?;
        target.seek(SeekFrom::Start(at))?;
        while at < end {
            let wanted = (end - at).min(STEP_BYTES) as usize;
            source.read_exact(&mut buffer[..wanted])?;
            target.write_all(&buffer[..wanted])?;
            at += wanted as u64;
        }
    }
    target.set_len(length)
}

/// Returns the offsets and lengths of the data of a file, in order. The rest is holes.
pub(in crate::backup) fn data_ranges(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let (length, mut at, mut ranges) = (file.metadata()?.len(), 0, Vec::new());
    while at < length {
        at = match rustix::fs::seek(file, Position::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, Position::Hole(at))?;
        ranges.push((at, end - at));
        at = end;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy during which the volume was written to is none.
    #[test]
    fn copy_of_a_changing_volume_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("from");
        std::fs::write(&path, "first").unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let try_copy = |is_written: bool| {
            let (mut source, mut target) = (File::open(&path).unwrap(), tempfile::tempfile().unwrap());
            copy_unchanged(&mut source, &mut target, |source, target| {
                copy_sparse(source, target)?;
                let mut writer = File::options().write(true).open(&path)?;
                if is_written { writer.write_all(b"other") } else { Ok(()) }
            })
        };
        assert!(try_copy(false).unwrap());
        assert!(!try_copy(true).unwrap());
    }

    /// A copy has the bytes and the holes of its source, and a volume in use is never copied in pieces.
    #[test]
    fn copies_are_sparse() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        let mut file = File::create(&from).unwrap();
        file.write_all(b"begin").unwrap();
        file.seek(SeekFrom::Start(64 << 20)).unwrap();
        file.write_all(b"end").unwrap();
        file.set_len(128 << 20).unwrap();
        assert!(copy_volume(&from, &to, false).unwrap());
        assert_eq!(FileSum::of(place.path(), "from").unwrap().blake3, FileSum::of(place.path(), "to").unwrap().blake3);
        assert!(to.metadata().unwrap().blocks() * 512 < 4 << 20, "the holes take no space");
        std::fs::remove_file(&to).unwrap();
        assert_eq!(copy_volume(&from, &to, true).unwrap(), to.exists(), "it is cloned, or nothing is left");
    }
}
