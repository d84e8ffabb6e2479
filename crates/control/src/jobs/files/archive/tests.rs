//! Archives as people make them, and archives as attackers make them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::*;

const LIMITS: Limits = Limits { files: 100, unpacked_bytes: 1 << 20 };

fn compressed(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn archive(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    fill(&mut builder);
    compressed(&builder.into_inner().unwrap())
}

/// Appends an entry whose path is written as it is.
fn raw(builder: &mut Builder<Vec<u8>>, kind: EntryType, path: &[u8], link: &[u8], data: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

fn one(kind: EntryType, path: &str, link: &str) -> Vec<u8> {
    archive(|builder| raw(builder, kind, path.as_bytes(), link.as_bytes(), b""))
}

/// Checks an archive in pieces of this size.
fn check_in(data: &[u8], piece: usize, limits: Limits) -> std::result::Result<(), ArchiveError> {
    let mut checked = GzipChecker::new(limits);
    for piece in data.chunks(piece) {
        checked.push(piece)?;
    }
    checked.finish()
}

fn check(data: &[u8]) -> std::result::Result<(), ArchiveError> {
    let whole = check_in(data, usize::MAX, LIMITS);
    for piece in [1, 7, 513] {
        let pieces = check_in(data, piece, LIMITS);
        assert_eq!(pieces.is_ok(), whole.is_ok(), "in pieces of {piece}: {pieces:?}, and at once: {whole:?}");
    }
    whole
}

fn refusal(data: &[u8]) -> String {
    match check(data).expect_err("it is refused") {
        ArchiveError::Invalid(why) => why,
        ArchiveError::TooLarge(why) => format!("too large: {why}"),
    }
}

/// Archives as people pack them are accepted.
#[test]
fn ordinary_archive_is_accepted() {
    let data = archive(|builder| {
        let file = |builder: &mut Builder<_>, path: &str, data: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, data).unwrap();
        };
        raw(builder, EntryType::Directory, b"./", b"", b"");
        raw(builder, EntryType::Directory, b"./src/", b"", b"");
        file(builder, "src/main.py", b"print('hi')\n");
        raw(builder, EntryType::Regular, b"./with\nnewline \xff", b"", &[7; 600]);
        file(builder, &format!("long/{}/{}", "d".repeat(120), "f".repeat(200)), &[1; 512]);
        raw(builder, EntryType::Symlink, b"src/data", b"../data/train", b"");
        raw(builder, EntryType::Symlink, b"latest", b"src", b"");
        raw(builder, EntryType::Link, b"copy.py", b"src/main.py", b"");
        let pax = [("path", "ünïcode/".to_owned() + &"x".repeat(150)), ("mtime", "1.5".to_owned())];
        builder.append_pax_extensions(pax.iter().map(|(key, value)| (*key, value.as_bytes()))).unwrap();
        raw(builder, EntryType::Regular, b"short", b"", b"pax");
    });
    assert_eq!(check(&data), Ok(()));
    assert_eq!(check(&archive(|_| {})), Ok(()), "an archive of nothing is an archive");
}

/// A harmful entry is refused, and its path is named.
#[test]
fn harmful_entry_is_refused() {
    let cases = [
        (one(EntryType::Regular, "/etc/passwd", ""), "'/etc/passwd' has an absolute path"),
        (one(EntryType::Regular, "../x", ""), "'../x' has a path with '..' in it"),
        (one(EntryType::Regular, "a/../../x", ""), "'..' in it"),
        (one(EntryType::Directory, "..", ""), "'..' in it"),
        (one(EntryType::Regular, "a//b", ""), "not clean"),
        (one(EntryType::Regular, "a/./b", ""), "not clean"),
        (one(EntryType::Regular, "./", ""), "has no name"),
        (one(EntryType::Char, "null", ""), "'null' is a device"),
        (one(EntryType::Block, "disk", ""), "'disk' is a device"),
        (one(EntryType::Fifo, "pipe", ""), "'pipe' is a named pipe"),
        (one(EntryType::Symlink, "a", "/etc/passwd"), "'a' is a symbolic link to an absolute path"),
        (one(EntryType::Symlink, "a", "../x"), "outside of the archive"),
        (one(EntryType::Symlink, "d/a", "../../x"), "outside of the archive"),
        (one(EntryType::Symlink, "d/a", "b/../../../x"), "'..' in the middle"),
        (one(EntryType::Symlink, "a", ""), "with an invalid target"),
        (one(EntryType::Link, "a", "/etc/shadow"), "'a' is a hard link to something outside of the archive"),
        (one(EntryType::Link, "a", "../x"), "hard link to something outside"),
        (one(EntryType::GNUSparse, "a", ""), "sparse files"),
        (one(EntryType::new(b'Q'), "a", ""), "has an unknown type"),
        (archive(|builder| raw(builder, EntryType::Directory, b"d", b"", b"contents")), "'d' has contents"),
        (
            archive(|builder| {
                raw(builder, EntryType::Symlink, b"l", b"d", b"");
                raw(builder, EntryType::Regular, b"l/x", b"", b"");
            }),
            "'l/x' goes through a symbolic link",
        ),
        (
            archive(|builder| {
                raw(builder, EntryType::Symlink, b"d/l", b"..", b"");
                raw(builder, EntryType::Symlink, b"./d/l/m", b"../x", b"");
            }),
            "goes through a symbolic link",
        ),
        (
            archive(|builder| {
                raw(builder, EntryType::Symlink, b"l", b"d", b"");
                raw(builder, EntryType::Regular, b"l", b"", b"over it");
            }),
            "goes through a symbolic link",
        ),
    ];
    for (data, expected) in cases {
        let why = refusal(&data);
        assert!(why.contains(expected), "{why:?} does not contain {expected:?}");
    }
}

/// What extension headers say about an entry is checked.
#[test]
fn extension_headers_are_checked() {
    for (key, value, expected) in [
        ("path", "../x", "'..' in it"),
        ("path", "/x", "absolute"),
        ("path", "a\0b", "NUL"),
        ("linkpath", "/x", "absolute"),
        ("size", "99999999999", "too large"),
        ("GNU.sparse.major", "1", "sparse files"),
    ] {
        let data = archive(|builder| {
            builder.append_pax_extensions([(key, value.as_bytes())]).unwrap();
            raw(builder, EntryType::Symlink, b"innocent", b"too", b"");
        });
        let why = refusal(&data);
        assert!(why.contains(expected), "{key} = {value}: {why:?}");
    }
    let long = archive(|builder| {
        raw(builder, EntryType::GNULongName, b"././@LongLink", b"", b"/etc/passwd\0");
        raw(builder, EntryType::Regular, b"innocent", b"", b"");
    });
    assert!(refusal(&long).contains("'/etc/passwd' has an absolute path"));
    let endless = archive(|builder| raw(builder, EntryType::XHeader, b"x", b"", &vec![b'1'; 2 << 20]));
    assert!(refusal(&endless).contains("are too long"));
}

/// Archives that expand beyond the limits are refused.
#[test]
fn archive_bomb_is_refused() {
    let many = archive(|builder| {
        for at in 0..101 {
            raw(builder, EntryType::Regular, format!("f{at}").as_bytes(), b"", b"");
        }
    });
    assert!(refusal(&many).contains("too large: a job may have at most 100 files"));
    let large = archive(|builder| raw(builder, EntryType::Regular, b"zeros", b"", &vec![0; (1 << 20) + 1]));
    assert!(
        refusal(&large).contains("too large: its files may have at most 1048576 bytes in total; 'zeros' exceeds that")
    );
    // Zeros after the end are accepted up to the size limit.
    assert!(refusal(&compressed(&vec![0; 4 << 20])).contains("too large"));
}

/// An archive must be complete, with no data after its end.
#[test]
fn archive_must_be_complete() {
    let whole = archive(|builder| raw(builder, EntryType::Regular, b"a", b"", &[1; 3000]));
    for cut in [0, 1, 5, 10, whole.len() / 2, whole.len() - 9, whole.len() - 8, whole.len() - 1] {
        assert!(check(&whole[..cut]).is_err(), "cut after {cut} of {} bytes", whole.len());
    }
    let trailing = [whole.as_slice(), b"more"].concat();
    assert!(refusal(&trailing).contains("follows after its end"));
    let twice = [whole.as_slice(), &whole].concat();
    assert!(refusal(&twice).contains("follows after its end"));

    let mut builder = Builder::new(Vec::new());
    raw(&mut builder, EntryType::Regular, b"a", b"", b"x");
    let plain = builder.into_inner().unwrap();
    assert!(refusal(&plain).contains("not compressed by gzip"));
    assert!(refusal(&compressed(&plain[..1024])).contains("cut off"), "an archive without its last blocks");
    let mut garbage = plain.clone();
    garbage.extend_from_slice(&[1; 512]);
    assert!(refusal(&compressed(&garbage)).contains("follows after its end"));
    assert!(refusal(&compressed(b"just some text, which is not an archive at all")).contains("cut off"));
    assert!(refusal(&compressed(&[b'x'; 2048])).contains("not a tar archive"));
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    assert!(check(&damaged).is_err(), "a damaged one");
    assert_eq!(refusal(b""), "it is empty");
}

/// An archive that arrives in pieces is checked like a whole one.
#[tokio::test]
async fn streamed_archive_is_checked() {
    let whole = archive(|builder| {
        // Random bytes do not compress, so that there is more than one round.
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..900_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        raw(builder, EntryType::Regular, b"noise", b"", &noise);
    });
    let mut streamed = ArchiveChecker::new(LIMITS);
    for piece in whole.chunks(10_000) {
        streamed.push(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    streamed.finish().await.unwrap();

    let mut streamed = ArchiveChecker::new(Limits { unpacked_bytes: 800_000, ..LIMITS });
    streamed.push(Bytes::from(whole.clone())).await.unwrap_err();
    let mut streamed = ArchiveChecker::new(LIMITS);
    streamed.push(Bytes::copy_from_slice(&whole[..20_000])).await.unwrap();
    let error = streamed.finish().await.unwrap_err();
    assert_eq!(error.code, "invalid_archive");
}

/// An archive whose contents are far larger than its bytes is refused early; smaller ones may be anything.
#[test]
fn contents_are_bounded_by_archive() {
    let checked = |zeros: u64| {
        let mut header = Header::new_gnu();
        header.set_path("zeros").unwrap();
        header.set_size(zeros);
        header.set_mode(0o644);
        header.set_cksum();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(header.as_bytes()).unwrap();
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), zeros + 1024), &mut encoder).unwrap();
        let mut checker = GzipChecker::new(Limits { files: 10, unpacked_bytes: u64::MAX >> 1 });
        let packed = encoder.finish().unwrap();
        packed.chunks(64 << 10).try_for_each(|piece| checker.push(piece)).and_then(|()| checker.finish())
    };
    assert_eq!(checked(8 << 20), Ok(()), "few bytes may be anything");
    let Err(ArchiveError::TooLarge(why)) = checked(400 << 20) else { panic!("a bomb is refused") };
    assert!(why.contains("200 times larger than the archive"), "{why}");
}
