//! The first command of a push: the names of all files and empty directories in the directory of the client, and how its answer
//! is read.
//!
//! Names may hold any byte but NUL and come in great numbers, and the client reads byte by byte and wants text: so they are
//! packed, and written as letters.

use std::io::Read;

use super::shell;
use super::windows;
use super::{Client, matching};

/// How many bytes the names may have together.
const MAX_BYTES: u64 = 32 << 20;

/// How many files a directory may have.
const MAX_NAMES: usize = 1_000_000;

/// How long one name may be. Clients have no longer ones.
const MAX_NAME_BYTES: usize = 4096;

/// The command.
pub(super) fn listing_command(client: Client, ignored: &[String]) -> String {
    match client {
        Client::Unix => unix_listing(&matching::prunable_names(ignored)),
        Client::Windows => windows::windows_listing(),
    }
}

/// In plain `sh`, a pipe ends well when its last program does; so each program has a file of its own and is looked at.
fn unix_listing(pruned: &[&str]) -> String {
    // Our own temporary directories, should they be made below this one.
    let own = shell::shell_quoted(&format!("{}*", shell::TEMPORARY));
    let names: Vec<String> = pruned.iter().map(|name| format!(" -o -name {}", shell::shell_quoted(name))).collect();
    [
        shell::PRELUDE,
        shell::TEMPORARY_DIRECTORY,
        // What is asked for is said after the directories that are left out.
        "list() { find . -type d \\( -name ",
        &own,
        &names.concat(),
        " \\) -prune -o \"$@\" -print0; }\n\
         list \\( -type f -o -type l \\) >\"$d/names\" \\\n  \
         || fail 'not all of this directory can be read; see above, and ignore what is not needed'\n",
        // Not every find knows what is empty, and such directories are not worth a failure. An empty name stands before them.
        "if list -type d -empty >\"$d/directories\" 2>/dev/null && [ -s \"$d/directories\" ]; then\n  \
         { printf '\\0' && cat \"$d/directories\"; } >>\"$d/names\" || fail 'there is no space left'\n\
         fi\n\
         gzip -c <\"$d/names\" >\"$d/names.gz\" || fail 'gzip is needed, or there is no space left'\n\
         base64 <\"$d/names.gz\" || fail 'base64 is needed'\n",
    ]
    .concat()
}

/// The names in the answer: relative, with slashes. Or why there are none, in words.
pub(super) fn parse_names(stdout: &str) -> Result<Names, String> {
    let letters: Vec<u8> = stdout.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let damaged = |_| "the list of files did not arrive as it was sent; push again".to_owned();
    let packed = base64_simd::STANDARD.decode_to_vec(letters).map_err(damaged)?;
    let mut text = Vec::new();
    let read = flate2::read::GzDecoder::new(packed.as_slice()).take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|_| "the list of files did not arrive as it was sent; push again".to_owned())?;
    let count = text.iter().filter(|byte| **byte == 0).count();
    if count > MAX_NAMES {
        return Err(format!("there are more than {MAX_NAMES} files; ignore those that the job does not need"));
    }
    if text.len() as u64 > MAX_BYTES {
        let limit = MAX_BYTES >> 20;
        return Err(format!(
            "the names of the files have more than {limit} MiB; ignore those that the job does not need"
        ));
    }
    if text.split(|byte| *byte == 0).any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(format!("the name of a file has more than {MAX_NAME_BYTES} bytes; ignore its directory"));
    }
    Ok(Names(text))
}

/// Names as they came, each with a NUL after it: those of files, and after an empty one those of empty directories.
pub(super) struct Names(Vec<u8>);

/// What may belong to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Relative, with slashes.
    pub(super) name: &'a [u8],
    pub(super) is_directory: bool,
}

impl Names {
    /// Each name, without the `./` in front of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut is_directory = false;
        let entries = self.0.split(|byte| *byte == 0).map(move |name| {
            is_directory |= name.is_empty();
            Entry { name: name.strip_prefix(b"./").unwrap_or(name), is_directory }
        });
        // An empty directory is asked for what is in it, and says itself.
        entries.filter(|entry| !matches!(entry.name, b"" | b"."))
    }
}

/// The names as `tar` reads them. The `./` keeps those apart from options that begin like one.
pub(super) fn render_tar_list(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut list = Vec::with_capacity(entries.iter().map(|entry| entry.name.len() + 3).sum());
    for entry in entries {
        list.extend_from_slice(b"./");
        list.extend_from_slice(entry.name);
        list.push(0);
    }
    list
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(names: &[u8]) -> String {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(names).unwrap();
        base64_simd::STANDARD.encode_to_string(gzip.finish().unwrap())
    }

    #[test]
    fn names_come_back_as_they_were() {
        let text = packed(b"./a\0./b/c d\0./new\nline\0./-x\0./caf\xe9\0");
        let wrapped: String =
            text.as_bytes().chunks(7).map(|part| format!("{}\r\n", String::from_utf8_lossy(part))).collect();
        let names = parse_names(&wrapped).unwrap();
        let entries: Vec<Entry<'_>> = names.iter().collect();
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name).collect();
        assert_eq!(names, [&b"a"[..], b"b/c d", b"new\nline", b"-x", b"caf\xe9"]);
        assert!(entries.iter().all(|entry| !entry.is_directory));
        assert_eq!(render_tar_list(&entries[2..4]), b"./new\nline\0./-x\0");
        assert_eq!(super::parse_names(&packed(b"")).unwrap().iter().count(), 0);
    }

    #[test]
    fn empty_directories_stand_after_the_files() {
        let found = |text: &[u8]| {
            let names = parse_names(&packed(text)).unwrap();
            let shown = |entry: Entry<'_>| {
                format!("{}{}", entry.name.escape_ascii(), ["", "/"][usize::from(entry.is_directory)])
            };
            names.iter().map(shown).collect::<Vec<String>>()
        };
        assert_eq!(found(b"./a\0\0./b\0./c/d\0"), ["a", "b/", "c/d/"]);
        assert_eq!(found(b"\0./b\0"), ["b/"]);
        assert_eq!(found(b"\0.\0"), [""; 0], "there is nothing at all");
    }

    #[test]
    fn what_is_damaged_or_too_much_is_refused() {
        let whole = packed(b"./a\0");
        for text in ["", "%", "aGVsbG8=", &whole[..whole.len() - 8]] {
            assert!(parse_names(text).err().unwrap().contains("push again"), "{text}");
        }
        let many = vec![b"a\0".as_slice(); MAX_NAMES + 1].concat();
        assert!(parse_names(&packed(&many)).err().unwrap().contains("more than 1000000 files"));
        let bomb = vec![b'a'; (MAX_BYTES + 1) as usize];
        assert!(parse_names(&packed(&bomb)).err().unwrap().contains("more than 32 MiB"));
        let deep = "a/".repeat(1_000_000);
        assert!(parse_names(&packed(deep.as_bytes())).err().unwrap().contains("more than 4096 bytes"));
        let long = [vec![b'a'; MAX_NAME_BYTES], vec![0]].concat();
        assert!(parse_names(&packed(&long)).is_ok());
    }
}
