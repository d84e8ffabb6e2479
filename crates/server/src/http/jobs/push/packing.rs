//! The second command of a push: packs the files of the list into an archive and uploads it.

use super::shell;
use super::{Client, windows};

/// The parameters of the command.
pub(super) struct Packing<'a> {
    pub(super) list_url: &'a str,
    pub(super) upload_url: &'a str,
    pub(super) count: usize,
}

/// Returns the command for this client.
pub(super) fn packing_command(client: Client, packing: &Packing<'_>) -> String {
    match client {
        Client::Unix => unix_packing(packing),
        Client::Windows => windows::windows_packing(packing),
    }
}

/// The archive is written to a file first, so that its size is known and a failure of `tar` is noticed before the
/// upload. A file that changes while it is read is no failure; GNU tar reports it with exit code 1, which is an error
/// for other implementations.
fn unix_packing(packing: &Packing<'_>) -> String {
    let (list, upload) = (shell::shell_quoted(packing.list_url), shell::shell_quoted(packing.upload_url));
    let files = file_count_text(packing.count);
    [
        shell::PRELUDE,
        "for program in curl tar gzip; do\n  \
           command -v $program >/dev/null 2>&1 || fail \"$program is needed to upload files; install it and push again\"\n\
         done\n",
        shell::TEMPORARY_DIRECTORY,
        &format!(
            "curl -q -fsSg --connect-timeout 30 --retry 3 -o \"$d/list\" {list} \\\n  \
               || fail 'the list of the files could not be fetched from the engine; push again'\n\
             COPYFILE_DISABLE=1 tar --null --no-recursion -czf \"$d/files.tar.gz\" -T \"$d/list\"\n\
             packed=$?\n\
             if [ $packed = 1 ] && tar --version 2>/dev/null | grep -q GNU; then\n  \
               echo 'Some files changed while they were packed; see above' >&2\n\
             elif [ $packed != 0 ]; then\n  \
               fail 'the files could not be packed; see above, and push again'\n\
             fi\n\
             size=$(wc -c <\"$d/files.tar.gz\") || fail 'the archive is gone'\n\
             if [ \"$size\" -ge 1000000 ]; then shown=\"$((size / 1000000)).$((size / 100000 % 10)) MB\"; \
             else shown=\"$(((size + 999) / 1000)) kB\"; fi\n\
             echo \"Uploading {files}, $shown packed\"\n\
             status=$(curl -q -g --progress-bar --connect-timeout 30 --retry 3 -o \"$d/answer\" -w '%{{http_code}}' \
             -T \"$d/files.tar.gz\" {upload}) \\\n  \
               || fail 'the upload broke off; push again'\n\
             [ \"$status\" = 200 ] && exit 0\n\
             why=$(sed -n 's/.*\"message\":\"\\([^\"]*\\)\".*/\\1/p' \"$d/answer\")\n\
             fail \"the engine refused the upload (HTTP status $status)${{why:+: $why}}\"\n"
        ),
    ]
    .concat()
}

/// Renders a number of files.
pub(super) fn file_count_text(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
