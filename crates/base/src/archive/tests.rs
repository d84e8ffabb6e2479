//! Archives that nobody would write by accident.

use tar::Builder;

use super::*;

const MAX_EXTENSION: u64 = 2048;

/// A reader that rejects empty buffers, as a decompressor may, and that returns little at a time.
struct Picky<'a>(&'a [u8]);

impl Read for Picky<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        assert!(!piece.is_empty());
        let most = piece.len().min(300);
        self.0.read(&mut piece[..most])
    }
}

/// Builds an archive of entries whose names are written as they are.
fn archive(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, data) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn read_all(bytes: &[u8]) -> io::Result<Vec<Entry>> {
    let mut entries = Entries::new(Picky(bytes), MAX_EXTENSION);
    std::iter::from_fn(|| entries.next_entry().transpose()).collect()
}

fn refusal(bytes: &[u8]) -> String {
    read_all(bytes).unwrap_err().to_string()
}

#[test]
fn pax_records_are_delimited_by_length() {
    let one = (b"path".to_vec(), b"a".to_vec());
    assert_eq!(parse_records(b"10 path=a\n").unwrap(), std::slice::from_ref(&one));
    assert_eq!(parse_records(b"9 k=\n\0 =\n10 path=a\n").unwrap(), [(b"k".to_vec(), b"\n\0 =".to_vec()), one]);
    assert_eq!(parse_records(b"").unwrap(), []);
    let invalid: [&[u8]; 9] = [
        b"10 path=a",
        b"11 path=a\n",
        b"8 path=a\n",
        b"path=a\n",
        b"+9 path=a\n",
        b"3 \n",
        b"5 =a\n",
        b" ",
        b"99999999999999999999999 a=b\n",
    ];
    for invalid in invalid {
        assert!(parse_records(invalid).is_err(), "{:?}", String::from_utf8_lossy(invalid));
    }
    let last = parse_records(b"10 path=a\n10 path=b\n8 path=\n").unwrap();
    assert_eq!(last_value(&last, b"path"), None, "what is noted as nothing is not noted");
}

#[test]
fn extension_headers_apply_to_the_next_entry() {
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([("size", b"3".as_slice()), ("user", b"a\nb")]).unwrap();
    let mut header = Header::new_ustar();
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, &b""[..]).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 2 * BLOCK);
    bytes.extend_from_slice(b"abc");
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    let mut long = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    long.append_data(&mut header, "n/".repeat(200), &b"x"[..]).unwrap();
    bytes.extend(long.into_inner().unwrap());
    let mut entries = Entries::new(Picky(&bytes), MAX_EXTENSION);
    let first = entries.next_entry().unwrap().unwrap();
    assert_eq!((last_value(&first.records, b"user").unwrap(), first.size), (b"a\nb".to_vec(), 3));
    let mut piece = [0; 10];
    assert_eq!((entries.read(&mut piece).unwrap(), &piece[..3]), (3, b"abc".as_slice()));
    assert_eq!(entries.read(&mut piece).unwrap(), 0);
    let second = entries.next_entry().unwrap().unwrap();
    assert!(second.path.starts_with(&b"n/".repeat(199)) && second.records.is_empty());
    assert!(entries.next_entry().unwrap().is_none());
}

/// The name of GNU wins over that of PAX, as in every reader, so that no two of them unpack different files.
#[test]
fn long_name_wins_over_pax_path() {
    let name = (EntryType::GNULongName, "././@LongLink", b"gnu\0rest".as_slice());
    let pax = (EntryType::XHeader, "x", b"12 path=pax\n".as_slice());
    let file = (EntryType::Regular, "old", b"".as_slice());
    let empty = (EntryType::GNULongName, "././@LongLink", b"\0".as_slice());
    for (headers, expected) in [
        (vec![name, pax, file], b"gnu".as_slice()),
        (vec![pax, name, file], b"gnu"),
        (vec![pax, file], b"pax"),
        (vec![empty, file], b"old"),
        (vec![(EntryType::XGlobalHeader, "g", b"12 comment=\n"), file], b"old"),
    ] {
        assert_eq!(read_all(&archive(&headers)).unwrap()[0].path, expected, "{headers:?}");
    }
}

/// Every form of sparse file has the same kind, which no user accepts.
#[test]
fn sparse_files_are_recognized() {
    let records = (EntryType::XHeader, "x", b"22 GNU.sparse.major=1\n".as_slice());
    for entries in [vec![records, (EntryType::Regular, "a", b"")], vec![(EntryType::GNUSparse, "a", b"")]] {
        assert_eq!(read_all(&archive(&entries)).unwrap()[0].kind, EntryType::GNUSparse);
    }
}

#[test]
fn malformed_headers_are_refused() {
    let file = (EntryType::Regular, "a", b"".as_slice());
    let pax = |text: &'static [u8]| (EntryType::XHeader, "x", text);
    let name = (EntryType::GNULongName, "././@LongLink", b"b".as_slice());
    let global = |text: &'static [u8]| (EntryType::XGlobalHeader, "g", text);
    let long = vec![b'1'; MAX_EXTENSION as usize + 1];
    for (entries, expected) in [
        (vec![pax(b"13 size=many\n"), file], "the size of an entry is not a number"),
        (vec![pax(b"nonsense"), file], "PAX records are invalid"),
        (vec![pax(b"10 path=a\n"), pax(b"10 path=b\n"), file], "two extension headers of a kind"),
        (vec![name, name, file], "two extension headers of a kind"),
        (vec![file, name], "it ends after an extension header"),
        (vec![global(b"10 path=x\n"), file], "the same path or size"),
        (vec![global(b"14 linkpath=x\n"), file], "the same path or size"),
        (vec![global(b"10 size=1\n"), file], "the same path or size"),
        (vec![(EntryType::XHeader, "x", &long), file], "are too long"),
        (vec![(EntryType::GNULongName, "x", &long), file], "are too long"),
        (vec![(EntryType::GNULongLink, "x", &long), file], "are too long"),
        (vec![(EntryType::XGlobalHeader, "x", &long), file], "are too long"),
    ] {
        let why = refusal(&archive(&entries));
        assert!(why.contains(expected), "{why:?} does not contain {expected:?}");
    }
    assert!(refusal(&[b'x'; BLOCK]).contains("it is not a tar archive"));
    let mut damaged = archive(&[file]);
    damaged[0] ^= 1;
    assert!(refusal(&damaged).contains("the checksum of an entry is wrong"));
    // Only the formats that know extension headers have them.
    let mut old = Header::new_old();
    old.set_entry_type(EntryType::GNULongName);
    old.set_size(0);
    old.set_cksum();
    assert_eq!(read_all(old.as_bytes()).unwrap()[0].kind, EntryType::GNULongName);
}

/// An archive may end without blocks of zeros, but not inside of anything.
#[test]
fn truncated_archive_is_an_error() {
    let whole = archive(&[(EntryType::GNULongName, "x", b"long"), (EntryType::Regular, "a", &[1; 600])]);
    let end = whole.len() - 2 * BLOCK;
    for length in (1..whole.len()).filter(|length| length % 100 == 0 || length % BLOCK == 0) {
        // The first block of zeros ends it.
        let is_whole = length == end || length >= end + BLOCK;
        assert_eq!(read_all(&whole[..length]).is_ok(), is_whole, "{length} of {}", whole.len());
    }
    assert!(read_all(&[]).unwrap().is_empty());
}
