//! The files of jobs, valid and hostile.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use tarn_link::{FromJob, JobEnd, JobOrder, Purpose, Reply};

use super::{Seen, done, finish, order};
use crate::fixture::{Fixture, Link, OTHER_UID};

/// Builds an archive of entries: the kind, the name, and the contents or link target of each.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (kind, name, contents) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o6755);
        header.set_mtime(1_000_000_000);
        header.set_uid(0);
        header.set_gid(0);
        // Set directly: the library refuses to write hostile names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
        if is_link {
            header.as_old_mut().linkname[..contents.len()].copy_from_slice(contents.as_bytes());
        }
        let data = if is_link { &[] } else { contents.as_bytes() };
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn with_files(commands: &[&str]) -> JobOrder {
    JobOrder { has_files: true, ..order(commands) }
}

async fn send(fixture: &Fixture, order: &JobOrder, archive: &[u8]) -> Link {
    let (answer, mut link) = fixture.ask(Purpose::RunJob(Box::new(order.clone()))).await.unwrap();
    assert_eq!(answer, Reply::SendFiles);
    for piece in archive.chunks(1000) {
        link.1.data(piece).await.unwrap();
    }
    link.1.eof().await.unwrap();
    link
}

/// The files of a job are in place when its commands run.
#[tokio::test]
async fn files_exist_before_commands_run() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let mut mine = with_files(&["cat dir/file link hard; ls -A; test -x dir/file && echo new >> dir/file"]);
    let files = archive(&[
        (EntryType::Directory, "./", ""),
        (EntryType::Directory, "dir/", ""),
        (EntryType::Regular, "./dir/file", "text\n"),
        (EntryType::Symlink, "link", "dir/file"),
        (EntryType::Symlink, "absolute", "/etc/passwd"),
        (EntryType::Link, "hard", "dir/file"),
        (EntryType::Regular, "a\nb", ""),
    ]);
    let mut link = send(&fixture, &mine, &files).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.text(), "text\ntext\ntext\na?b\nabsolute\ndir\nhard\nlink\n".replace('?', "\n"));
    seen.assert_end(JobEnd::Exited { code: 0 });
    let file = fixture.root.home().join("jobs").join(&mine.job).join("dir/file").metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o7777), (OTHER_UID, OTHER_UID, 0o755));
    let other = fixture.root.home().join("jobs").join(&mine.job).join("a\nb").metadata().unwrap();
    assert_eq!(other.mtime(), 1_000_000_000);
    done(link).await;
    // The next attempt finds the directory as the first one left it.
    mine.attempt = 2;
    mine.commands = vec!["cat dir/file".into()];
    assert_eq!(super::run(&fixture, &mine).await.text(), "text\nnew\n");
}

/// Hostile archives are refused and leave nothing behind.
#[tokio::test]
async fn hostile_archives_are_refused() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let outside = fixture.root.home().join("outside");
    std::fs::write(&outside, "mine").unwrap();
    std::os::unix::fs::chown(&outside, Some(OTHER_UID), Some(OTHER_UID)).unwrap();
    let home = fixture.root.home().display().to_string();
    let file = EntryType::Regular;
    let whole = archive(&[(file, "a", &"x".repeat(100_000))]);
    let mut bent = whole.clone();
    let middle = bent.len() / 2;
    bent[middle] ^= 0x55;
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("absolute", archive(&[(file, &format!("{home}/outside"), "evil")])),
        ("upwards", archive(&[(file, "../../outside", "evil")])),
        ("upwards within", archive(&[(file, "a/../../../outside", "evil")])),
        ("device", archive(&[(EntryType::Char, "null", "")])),
        ("block device", archive(&[(EntryType::Block, "disk", "")])),
        ("named pipe", archive(&[(EntryType::Fifo, "pipe", "")])),
        ("hard link out", archive(&[(EntryType::Link, "a", "../../outside"), (file, "a", "evil")])),
        ("absolute hard link", archive(&[(EntryType::Link, "a", &format!("{home}/outside"))])),
        ("through a link", archive(&[(EntryType::Symlink, "a", "../.."), (file, "a/outside", "evil")])),
        ("through an absolute link", archive(&[(EntryType::Symlink, "a", &home), (file, "a/outside", "evil")])),
        (
            "hard link through a link",
            archive(&[(EntryType::Symlink, "a", "../.."), (EntryType::Link, "b", "a/outside")]),
        ),
        ("truncated", whole[..whole.len() - 20].to_vec()),
        ("half", whole[..middle].to_vec()),
        ("bent", bent),
        ("nonsense", b"this is no archive at all".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (what, archive) in hostile {
        let mine = with_files(&["echo never"]);
        let mut link = send(&fixture, &mine, &archive).await;
        let seen = finish(&mut link).await;
        let Some(FromJob::NotStarted { reason, may_work_later: false }) = seen.end else { panic!("{what}: {seen:?}") };
        assert!(!reason.contains("killed"), "{what}: {reason}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "mine", "{what}");
        assert!(!fixture.root.home().join("jobs").join(&mine.job).exists(), "{what}");
        assert_eq!(fixture.ask(super::following(&mine, 0)).await.unwrap().0, Reply::NoSuchJob, "{what}");
    }
}

/// An archive bomb is refused before it fills disk or memory.
#[tokio::test]
async fn archive_bomb_is_refused() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    // Its header claims more than any disk holds, and it never ends.
    let mut header = Header::new_gnu();
    header.set_path("bomb").unwrap();
    header.set_size(1 << 60);
    header.set_mode(0o644);
    header.set_cksum();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header.as_bytes()).unwrap();
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    let mine = with_files(&["echo never"]);
    let mut link = send(&fixture, &mine, &encoder.finish().unwrap()).await;
    let seen = finish(&mut link).await;
    let Some(FromJob::NotStarted { reason, may_work_later: true }) = seen.end else { panic!("{seen:?}") };
    assert!(reason.contains("do not fit"), "{reason}");
    assert!(!fixture.root.home().join("jobs").join(&mine.job).exists());
    // An endless name must not use endless memory.
    let mut header = Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(4 << 30);
    header.set_cksum();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header.as_bytes()).unwrap();
    for _ in 0..10 {
        encoder.write_all(&vec![b'x'; 64 << 20]).unwrap();
    }
    let mut link = send(&fixture, &mine, &encoder.finish().unwrap()).await;
    let seen = finish(&mut link).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { .. })), "{seen:?}");
}

/// Directories get the attributes of the archive.
#[tokio::test]
async fn directory_attributes_are_restored() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let mine = with_files(&["stat -c '%a %Y' closed closed/inner; cat closed/inner/file"]);
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let entries = [("closed/", 0o500, ""), ("closed/inner/", 0o4750, ""), ("closed/inner/file", 0o400, "text")];
    for (name, mode, contents) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(if name.ends_with('/') { EntryType::Directory } else { EntryType::Regular });
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_size(contents.len() as u64);
        builder.append_data(&mut header, name, contents.as_bytes()).unwrap();
    }
    let mut link = send(&fixture, &mine, &builder.into_inner().unwrap().finish().unwrap()).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.text(), "500 1000000000\n750 1000000000\ntext");
    done(link).await;
    let escape = with_files(&["echo never"]);
    let files = archive(&[(EntryType::Symlink, "a", "../.."), (EntryType::Directory, "a/evil", "")]);
    let seen = finish(&mut send(&fixture, &escape, &files).await).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{seen:?}");
    assert!(!fixture.root.home().join("evil").exists());
}

/// A broken upload can be retried.
#[tokio::test]
async fn broken_upload_can_be_retried() {
    let fixture = Fixture::new();
    let mine = with_files(&["cat a"]);
    let files = archive(&[(EntryType::Regular, "a", "text"), (EntryType::Regular, "b", &"x".repeat(1 << 20))]);
    let (answer, mut link) = fixture.ask(Purpose::RunJob(Box::new(mine.clone()))).await.unwrap();
    assert_eq!(answer, Reply::SendFiles);
    link.1.data(&files[..files.len() / 2]).await.unwrap();
    drop(link);
    let mut link = send(&fixture, &mine, &files).await;
    let seen: Seen = finish(&mut link).await;
    assert_eq!(seen.text(), "text");
    done(link).await;
}
