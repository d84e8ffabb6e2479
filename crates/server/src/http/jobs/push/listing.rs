//! The first command of a push: it lists all files and empty directories in the directory of the client. And the parser
//! of its output.
//!
//! Names may contain any byte except NUL and may be many, and the client reads its output as text, slowly: so they are
//! compressed and encoded in base64.

use std::io::Read;

use super::shell;
use super::windows;
use super::{Client, matching};

/// The total size of the names.
const MAX_BYTES: u64 = 32 << 20;

/// The most files of a job.
const MAX_NAMES: usize = 1_000_000;

/// The longest name; clients have no longer ones.
const MAX_NAME_BYTES: usize = 4096;

/// Returns the command for this client.
pub(super) fn listing_command(client: Client, ignored: &[String]) -> String {
    match client {
        Client::Unix => unix_listing(&matching::prunable_names(ignored)),
        Client::Windows => windows::windows_listing(),
    }
}

/// In plain `sh`, the status of a pipe is that of its last program; so each program writes to a file and its status is
/// checked.
fn unix_listing(pruned: &[&str]) -> String {
    // The temporary directories of a push may be below this directory.
    let temporary = shell::shell_quoted(&format!("{}*", shell::TEMPORARY));
    let names: Vec<String> = pruned.iter().map(|name| format!(" -o -name {}", shell::shell_quoted(name))).collect();
    [
        shell::PRELUDE,
        shell::TEMPORARY_DIRECTORY,
        // The arguments follow the pruned directories.
        "list() { find . -type d \\( -name ",
        &temporary,
        &names.concat(),
        " \\) -prune -o \"$@\" -print0; }\n\
         list \\( -type f -o -type l \\) >\"$d/names\" \\\n  \
         || fail 'not all of this directory can be read; see above, and ignore what is not needed'\n",
        // Not every `find` supports `-empty`, and missing directories are no failure. An empty name separates them from
        // the files.
        "if list -type d -empty >\"$d/directories\" 2>/dev/null && [ -s \"$d/directories\" ]; then\n  \
         { printf '\\0' && cat \"$d/directories\"; } >>\"$d/names\" || fail 'there is no space left'\n\
         fi\n\
         gzip -c <\"$d/names\" >\"$d/names.gz\" || fail 'gzip is needed, or there is no space left'\n\
         base64 <\"$d/names.gz\" || fail 'base64 is needed'\n",
    ]
    .concat()
}

/// Parses the output of the command; the error is a message for the client.
pub(super) fn parse_names(stdout: &str) -> Result<Names, String> {
    let letters: Vec<u8> = stdout.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let damaged = |_| "the list of files was damaged in transit; push again".to_owned();
    let packed = base64_simd::STANDARD.decode_to_vec(letters).map_err(damaged)?;
    let mut text = Vec::new();
    let read = flate2::read::GzDecoder::new(packed.as_slice()).take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|_| "the list of files was damaged in transit; push again".to_owned())?;
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

/// The names as they were received, each followed by a NUL: files, then an empty name, then empty directories.
pub(super) struct Names(Vec<u8>);

/// A file or an empty directory that may belong to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Relative, with slashes.
    pub(super) name: &'a [u8],
    pub(super) is_directory: bool,
}

impl Names {
    /// Returns each name without its leading `./`.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut is_directory = false;
        let entries = self.0.split(|byte| *byte == 0).map(move |name| {
            is_directory |= name.is_empty();
            Entry { name: name.strip_prefix(b"./").unwrap_or(name), is_directory }
        });
        // An empty directory is listed as `.`.
        entries.filter(|entry| !matches!(entry.name, b"" | b"."))
    }
}

/// Renders the names for `tar`. The leading `./` distinguishes them from options.
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

    /// Names are parsed unchanged.
    #[test]
    fn names_are_parsed_unchanged() {
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

    /// Empty directories follow the files.
    #[test]
    fn empty_directories_follow_files() {
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

    /// A damaged or too large list is refused.
    #[test]
    fn damaged_or_large_list_is_refused() {
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
