//! The contents of objects: brought into a directory of backups by reference or by copying, and their list.
//!
//! A file of object storage never changes, and its id is never used again. So a content that a directory of backups has
//! is not copied again, and a hard link is as good as a copy where both are on one filesystem.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use crate::backup::place::manifest::{LIST, ObjectsCopy};
use crate::backup::place::sums::{FileSum, copy_with_md5, md5_of};
use crate::backup::place::{PARTIAL, Place, create_directory, shard};

/// What was done with the contents.
#[derive(Default)]
pub(in crate::backup) struct Collected {
    /// How many contents, and bytes of them, the directory of backups did not have.
    pub(in crate::backup) new_files: u64,
    pub(in crate::backup) new_bytes: u64,
    /// How many of them are hard links.
    pub(in crate::backup) linked: u64,
}

/// What is wrong with the source of a content.
enum Source {
    Intact(String),
    Damaged(String),
}

/// Brings the contents of these files into the directory of backups, and writes their list into a backup. New contents
/// are read once, to compare them with their checksums.
pub(in crate::backup) fn collect(
    place: &Place,
    objects: &Path,
    files: &[NamedFile],
    backup: &Path,
) -> io::Result<(ObjectsCopy, Collected)> {
    let (mut done, mut shards, mut damaged) = (Collected::default(), BTreeSet::new(), Vec::new());
    let list = File::options().write(true).create_new(true).mode(0o600).open(backup.join(LIST))?;
    let (mut list, mut count, mut bytes) = (BufWriter::new(list), 0, 0);
    for file in files {
        match ensure_content(place, objects, file, &mut done, &mut shards)? {
            Source::Intact(md5) => {
                writeln!(list, "{} {} {md5}", file.file, file.bytes)?;
                count += 1;
                bytes += file.bytes;
            }
            Source::Damaged(why) => damaged.push(format!("{}: {why}", file.file)),
        }
    }
    list.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    for shard in shards {
        File::open(place.contents().join(shard))?.sync_all()?;
    }
    File::open(place.contents())?.sync_all()?;
    let list = FileSum::of(backup, LIST)?;
    Ok((ObjectsCopy { files: count, bytes, list, damaged }, done))
}

/// Ensures that the directory of backups has the content of a file.
fn ensure_content(
    place: &Place,
    objects: &Path,
    file: &NamedFile,
    done: &mut Collected,
    shards: &mut BTreeSet<String>,
) -> io::Result<Source> {
    let (path, known) = (place.content(&file.file), file.md5.len() == 32);
    let shard = shard(&file.file).to_owned();
    create_directory(&place.contents().join(&shard))?;
    // Also the name of a content that is there may not be on disk yet: the backup that brought it may have been killed.
    shards.insert(shard.clone());
    match fs::metadata(&path) {
        Ok(found) if found.len() == file.bytes && known => return Ok(Source::Intact(file.md5.clone())),
        Ok(found) if found.len() == file.bytes => return Ok(Source::Intact(md5_of(&path)?.1)),
        // A damaged content of an earlier backup is replaced.
        Ok(_) => fs::remove_file(&path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (source, beside) = (objects.join(shard).join(file.file.as_str()), incomplete_name(&path));
    let (is_linked, found) = match bring(&source, &beside) {
        Ok(brought) => brought,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Source::Damaged("it is missing".to_owned())),
        Err(error) => return Err(error),
    };
    let (bytes, md5) = found;
    if bytes != file.bytes || known && md5 != file.md5 {
        fs::remove_file(&beside)?;
        return Ok(Source::Damaged("its content is not what was stored".to_owned()));
    }
    // The next backup trusts what has its name, so a content gets it after it was compared.
    fs::rename(&beside, &path)?;
    done.new_files += 1;
    done.new_bytes += bytes;
    done.linked += u64::from(is_linked);
    Ok(Source::Intact(md5))
}

/// The name of a content until it was compared.
fn incomplete_name(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(PARTIAL);
    PathBuf::from(beside)
}

/// Links a file to a new name, or copies it where that is not possible. Returns whether it was linked, and its size and
/// MD5.
fn bring(source: &Path, path: &Path) -> io::Result<(bool, (u64, String))> {
    // A backup that was killed may have left it.
    fs::remove_file(path).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    match fs::hard_link(source, path) {
        Ok(()) => return md5_of(path).map(|found| (true, found)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
        // Another filesystem, one without links, too many links, or the file of another user.
        Err(_) => {}
    }
    let found = copy_with_md5(source, path).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok((false, found))
}

/// Reads the list of the contents of a backup.
pub(in crate::backup) fn read_list(backup: &Path) -> io::Result<Vec<NamedFile>> {
    let wrong = || io::Error::other(format!("{LIST} has a line that is not understood"));
    let mut files = Vec::new();
    for line in BufReader::new(File::open(backup.join(LIST))?).lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some(file), Some(bytes), Some(md5), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(wrong());
        };
        let file: FileId = file.parse().map_err(|_| wrong())?;
        files.push(NamedFile { file, bytes: bytes.parse().map_err(|_| wrong())?, md5: md5.to_owned() });
    }
    Ok(files)
}

/// Returns what is wrong with a content, if anything is.
pub(in crate::backup) fn content_fault(place: &Place, file: &NamedFile) -> Option<String> {
    match md5_of(&place.content(&file.file)) {
        Ok((bytes, md5)) if bytes == file.bytes && md5 == file.md5 => None,
        Ok(_) => Some(format!("the content {} was changed", file.file)),
        Err(error) => Some(format!("the content {} cannot be read: {error}", file.file)),
    }
}

/// Copies the content of a file into a directory of objects, or links it there if `may_link`. An error if it is not
/// intact.
pub(in crate::backup) fn restore_content(
    place: &Place,
    file: &NamedFile,
    objects: &Path,
    may_link: bool,
) -> io::Result<()> {
    let (content, shard) = (place.content(&file.file), objects.join(shard(&file.file)));
    create_directory(&shard)?;
    let target = shard.join(file.file.as_str());
    let (bytes, md5) = match may_link && fs::hard_link(&content, &target).is_ok() {
        true => md5_of(&target)?,
        false => copy_with_md5(&content, &target)?,
    };
    if bytes == file.bytes && md5 == file.md5 {
        return Ok(());
    }
    fs::remove_file(&target)?;
    Err(io::Error::other("its content was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str, content: &[u8]) -> NamedFile {
        let md5 = hex::encode(<md5::Md5 as md5::Digest>::digest(content));
        NamedFile { file: id.parse().unwrap(), bytes: content.len() as u64, md5 }
    }

    /// What a killed backup linked and did not compare is not trusted by the next one.
    #[test]
    fn contents_are_compared_before_they_have_their_names() {
        let root = tempfile::tempdir().unwrap();
        let (objects, backup) = (root.path().join("objects"), root.path().join("backup"));
        let place = Place::open_for_writing(&root.path().join("backups")).unwrap();
        let (good, wrong) = (named("f-aa0000000001", b"good"), named("f-aa0000000002", b"good"));
        let shard = objects.join(shard(&good.file));
        fs::create_dir_all(&shard).unwrap();
        fs::write(shard.join(good.file.as_str()), "good").unwrap();
        fs::write(shard.join(wrong.file.as_str()), "oops").unwrap();
        fs::create_dir_all(place.content(&good.file).parent().unwrap()).unwrap();
        for file in [&good, &wrong] {
            // The kill was after the link.
            bring(&shard.join(file.file.as_str()), &incomplete_name(&place.content(&file.file))).unwrap();
        }
        fs::create_dir(&backup).unwrap();
        let (copied, collected) = collect(&place, &objects, &[good.clone(), wrong.clone()], &backup).unwrap();
        assert_eq!((copied.files, copied.damaged.len(), collected.new_files), (1, 1, 1));
        assert!(copied.damaged[0].starts_with(wrong.file.as_str()) && !place.content(&wrong.file).exists());
        assert_eq!(content_fault(&place, &good), None);
        assert_eq!(fs::read_dir(place.content(&good.file).parent().unwrap()).unwrap().count(), 1);
    }
}
