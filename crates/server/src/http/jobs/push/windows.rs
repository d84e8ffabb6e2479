//! The commands of a push for Windows, with its built-in PowerShell, `tar.exe` and `curl.exe`.
//!
//! They are run by `cmd.exe`, which accepts at most 8,191 characters and has its own quoting rules; a base64 script
//! needs no quotes.

use super::packing::{Packing, file_count_text};

/// Lists all files with slashes, each followed by a NUL, compressed and in base64.
pub(super) fn windows_listing() -> String {
    encode_powershell(
        "$ErrorActionPreference='Stop'\n\
         $n=Get-ChildItem -Recurse -Force -File -Name | ForEach-Object { './'+$_.Replace('\\','/')+[char]0 }\n\
         $b=[Text.Encoding]::UTF8.GetBytes(-join $n)\n\
         $m=New-Object IO.MemoryStream\n\
         $g=New-Object IO.Compression.GZipStream($m,[IO.Compression.CompressionMode]::Compress)\n\
         $g.Write($b,0,$b.Length); $g.Close()\n\
         [Console]::Out.Write([Convert]::ToBase64String($m.ToArray()))\n",
    )
}

/// Packs the files of the list and uploads them.
pub(super) fn windows_packing(packing: &Packing<'_>) -> String {
    let (list, upload, files) =
        (powershell_quoted(packing.list_url), powershell_quoted(packing.upload_url), file_count_text(packing.count));
    encode_powershell(&format!(
        "$ErrorActionPreference='Stop'\n\
         function Fail($t) {{ [Console]::Error.WriteLine($t); exit 1 }}\n\
         $d=Join-Path ([IO.Path]::GetTempPath()) ('tarn-push.'+[Guid]::NewGuid())\n\
         $null=New-Item -ItemType Directory $d\n\
         try {{\n\
         curl.exe -q -fsSg --retry 3 -o $d\\list {list}\n\
         if ($LASTEXITCODE) {{ Fail 'the list of the files could not be fetched from the engine; push again' }}\n\
         tar.exe --null --no-recursion -czf $d\\files.tar.gz -T $d\\list\n\
         if ($LASTEXITCODE) {{ Fail 'the files could not be packed; see above, and push again' }}\n\
         Write-Output \"Uploading {files}, $((Get-Item $d\\files.tar.gz).Length) bytes packed\"\n\
         $s=curl.exe -q -g --progress-bar --retry 3 -o $d\\answer -w '%{{http_code}}' -T $d\\files.tar.gz {upload}\n\
         if ($LASTEXITCODE) {{ Fail 'the upload broke off; push again' }}\n\
         if ($s -ne '200') {{ Fail \"the engine refused the upload (HTTP status $s): $(Get-Content $d\\answer)\" }}\n\
         }} finally {{ Remove-Item -Recurse -Force $d }}\n"
    ))
}

/// Quotes a text as one word of PowerShell.
fn powershell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a call of PowerShell with a script, which it accepts as UTF-16 in base64.
fn encode_powershell(script: &str) -> String {
    let bytes: Vec<u8> = script.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let encoded = base64_simd::STANDARD.encode_to_string(bytes);
    format!("powershell -NoProfile -NonInteractive -ExecutionPolicy Bypass -EncodedCommand {encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command fits into the limit of `cmd.exe`.
    #[test]
    fn windows_commands_fit_limit() {
        let url = "https://a-rather-long-name.of-an-engine.example.org:65535/job/upload/j-000000000000?expires=1800000000\
                   &signature=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let packing = windows_packing(&Packing { list_url: url, upload_url: url, count: 1_000_000 });
        assert!(
            windows_listing().len() < 8191 && packing.len() < 8191,
            "{} {}",
            windows_listing().len(),
            packing.len()
        );
    }
}
