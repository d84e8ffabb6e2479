//! The contents of objects: brought into a place of backups, and their list.
//!
//! A file of object storage never changes, and its id is never used again. So a content that a place has is not brought
//! again. A disk may change it all the same: each backup reads some of the contents that were there before, and after a
//! number of backups all of them were read.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use futures::{StreamExt as _, TryStreamExt as _};
use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use crate::backup::place::directory::create_directory;
use crate::backup::place::manifest::{LIST, ObjectsCopy};
use crate::backup::place::medium::{Brought, Medium};
use crate::backup::place::sums::FileSum;
use crate::backup::place::{content_key, shard};

/// How many contents are brought, read or restored at a time.
const AT_A_TIME: usize = 8;

/// The share of the contents that a backup reads again, and the bytes that it reads at least.
const REREAD_SHARE: u64 = 64;
const REREAD_BYTES: u64 = 64 << 20;

/// The note with the content at which the next backup continues to read.
const REREAD_NOTE: &str = "reread.next";

/// What was done with the contents.
#[derive(Default)]
pub(in crate::backup) struct Collected {
    /// How many contents, and bytes of them, the place did not have.
    pub(in crate::backup) new_files: u64,
    pub(in crate::backup) new_bytes: u64,
    /// How many of them are hard links.
    pub(in crate::backup) linked: u64,
    /// Contents that were damaged in the place, and were replaced.
    pub(in crate::backup) replaced: Vec<String>,
    /// The content at which the next backup continues to read.
    next: Option<String>,
}

/// What a content is in the place.
enum State {
    Known(String),
    New { is_linked: bool, md5: String },
    Replaced { md5: String },
    Damaged(&'static str),
}

/// Brings the contents of these files, and writes their list into a local directory. New contents are read once, to
/// compare them with their checksums.
pub(in crate::backup) async fn collect(
    medium: &dyn Medium,
    objects: &Path,
    files: &[NamedFile],
    staged: &Path,
) -> io::Result<(ObjectsCopy, Collected)> {
    let known = medium.contents().await?;
    let (again, next) = choose_again(medium.read_note(REREAD_NOTE).await?, files, &known);
    let (mut done, mut damaged) = (Collected { next, ..Collected::default() }, Vec::new());
    let list = std::fs::File::options().write(true).create_new(true).mode(0o600).open(staged.join(LIST))?;
    let (mut list, mut count, mut bytes) = (BufWriter::new(list), 0, 0);
    let states = futures::stream::iter(files).map(|file| {
        let size = known.get(&content_key(&file.file)).copied();
        let is_again = again.contains(&file.file);
        async move { ensure_content(medium, objects, file, size, is_again).await.map(|state| (file, state)) }
    });
    let mut states = states.buffered(AT_A_TIME);
    while let Some((file, state)) = states.try_next().await? {
        let md5 = match state {
            State::Known(md5) => md5,
            State::New { is_linked, md5 } => {
                done.new_files += 1;
                done.new_bytes += file.bytes;
                done.linked += u64::from(is_linked);
                md5
            }
            State::Replaced { md5 } => {
                done.replaced.push(file.file.to_string());
                md5
            }
            State::Damaged(why) => {
                damaged.push(format!("{}: {why}", file.file));
                continue;
            }
        };
        writeln!(list, "{} {} {md5}", file.file, file.bytes)?;
        count += 1;
        bytes += file.bytes;
    }
    list.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    let list = FileSum::of(staged, LIST)?;
    Ok((ObjectsCopy { files: count, bytes, list, damaged }, done))
}

/// Notes for the next backup what this one has read.
pub(in crate::backup) async fn note_read(medium: &dyn Medium, collected: &Collected) -> io::Result<()> {
    match &collected.next {
        Some(next) => medium.write_note(REREAD_NOTE, next).await,
        None => Ok(()),
    }
}

/// Chooses the contents that are read although the place had them before: those from where the last backup ended, in
/// the order of their ids, around all of them. Returns also where the next backup begins.
fn choose_again<'a>(
    note: Option<String>,
    files: &'a [NamedFile],
    known: &HashMap<String, u64>,
) -> (HashSet<&'a FileId>, Option<String>) {
    let old: Vec<_> = files.iter().filter(|file| known.get(&content_key(&file.file)) == Some(&file.bytes)).collect();
    let all: u64 = old.iter().map(|file| file.bytes).sum();
    let begin = note.map_or(0, |note| old.partition_point(|file| file.file.as_str() < note.trim()));
    let (mut chosen, mut bytes, wanted) = (HashSet::new(), 0, (all / REREAD_SHARE).max(REREAD_BYTES));
    let mut around = old[begin..].iter().chain(&old[..begin]);
    let next = loop {
        match around.next() {
            Some(file) if bytes >= wanted => break Some(file.file.to_string()),
            Some(file) => {
                bytes += file.bytes;
                chosen.insert(&file.file);
            }
            // All were chosen.
            None => break None,
        }
    };
    (chosen, next)
}

/// Ensures that the place has the content of a file. `size` is what it has.
async fn ensure_content(
    medium: &dyn Medium,
    objects: &Path,
    file: &NamedFile,
    size: Option<u64>,
    is_again: bool,
) -> io::Result<State> {
    let is_known = file.md5.len() == 32;
    if size == Some(file.bytes) {
        if is_known && !is_again {
            return Ok(State::Known(file.md5.clone()));
        }
        match medium.content_sum(&file.file).await {
            Ok((_, md5)) if !is_known || md5 == file.md5 => return Ok(State::Known(md5)),
            Err(error) if !medium.says_damage(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let source = objects.join(content_key(&file.file));
    Ok(match medium.bring(file, &source).await? {
        Brought::Stored { md5, .. } if size.is_some() => State::Replaced { md5 },
        Brought::Stored { is_linked, md5 } => State::New { is_linked, md5 },
        Brought::Missing => State::Damaged("it is missing"),
        Brought::Damaged => State::Damaged("its content is not what was stored"),
    })
}

/// Reads the list of the contents of a backup.
pub(in crate::backup) async fn read_list(medium: &dyn Medium, name: &str) -> io::Result<Vec<NamedFile>> {
    parse_list(&medium.read_file(name, LIST).await?)
}

/// Parses the list of the contents of a backup.
pub(in crate::backup) fn parse_list(text: &[u8]) -> io::Result<Vec<NamedFile>> {
    let wrong = || io::Error::other(format!("{LIST} has a line that is not understood"));
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (file, bytes, md5) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.to_owned());
        words.next().is_none().then_some(NamedFile { file, bytes, md5 })
    };
    text.lines().map(|line| parse(line).ok_or_else(wrong)).collect()
}

/// Returns what is wrong with the contents of a list. An error says nothing about them.
pub(in crate::backup) async fn content_faults(medium: &dyn Medium, list: &[NamedFile]) -> io::Result<Vec<String>> {
    let found = futures::stream::iter(list).map(|file| async move {
        match medium.content_sum(&file.file).await {
            Ok((bytes, md5)) if bytes == file.bytes && md5 == file.md5 => Ok(None),
            Ok(_) => Ok(Some(format!("the content {} was changed", file.file))),
            Err(error) if medium.says_damage(&error) => {
                Ok(Some(format!("the content {} cannot be read: {error}", file.file)))
            }
            Err(error) => Err(error),
        }
    });
    found.buffered(AT_A_TIME).try_filter_map(|fault| async { Ok(fault) }).try_collect().await
}

/// Copies the contents of a list into a directory of objects, or links them there if `may_link`. Returns which of them
/// are missing or damaged, and why.
pub(in crate::backup) async fn restore_contents(
    medium: &dyn Medium,
    list: &[NamedFile],
    objects: &Path,
    may_link: bool,
) -> io::Result<Vec<String>> {
    let restored = futures::stream::iter(list).map(|file| async move {
        create_directory(&objects.join(shard(&file.file)))?;
        let target = objects.join(content_key(&file.file));
        let why = match medium.copy_content(&file.file, &target, may_link).await {
            Ok((bytes, md5)) if bytes == file.bytes && md5 == file.md5 => return Ok(None),
            Ok(_) => {
                std::fs::remove_file(&target)?;
                "its content was changed"
            }
            Err(error) if error.kind() == ErrorKind::NotFound => "it is missing",
            Err(error) => return Err(error),
        };
        Ok(Some(format!("{}: {why}", file.file)))
    });
    restored.buffered(AT_A_TIME).try_filter_map(|fault| async { Ok(fault) }).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: u64, bytes: u64) -> NamedFile {
        NamedFile { file: format!("f-{number:012}").parse().unwrap(), bytes, md5: String::new() }
    }

    /// Each backup continues where the last one ended, and after some of them everything was read.
    #[test]
    fn contents_are_read_again_in_turns() {
        let files: Vec<_> = (0..100).map(|number| named(number, REREAD_BYTES.div_ceil(10))).collect();
        let known: HashMap<_, _> = files[1..].iter().map(|file| (content_key(&file.file), file.bytes)).collect();
        let (mut note, mut read, mut rounds) = (None, HashSet::new(), 0);
        while read.len() < 99 {
            let (chosen, next) = choose_again(note, &files, &known);
            assert_eq!(chosen.len(), 10);
            read.extend(chosen);
            (note, rounds) = (next, rounds + 1);
        }
        assert!(rounds == 10 && !read.contains(&files[0].file), "{rounds}");
        let few = &files[..5];
        assert_eq!(choose_again(note, few, &known), (few[1..].iter().map(|file| &file.file).collect(), None));
    }

    /// Of many contents it is a share, so that every one has its turn.
    #[test]
    fn large_places_have_a_larger_share() {
        let files: Vec<_> = (0..1280).map(|number| named(number, REREAD_BYTES)).collect();
        let known: HashMap<_, _> = files.iter().map(|file| (content_key(&file.file), file.bytes)).collect();
        let (chosen, next) = choose_again(Some("f-zzzzzzzzzzzz".to_owned()), &files, &known);
        assert!(chosen.len() == 20 && chosen.contains(&files[0].file));
        assert_eq!(next.as_deref(), Some(files[20].file.as_str()));
    }
}
