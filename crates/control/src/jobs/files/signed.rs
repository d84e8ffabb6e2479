//! Signatures of the URLs by which clients upload and download the files of a job. A signature permits exactly one
//! action until it expires. The addresses themselves are not known here.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::JobId;

use crate::Control;

/// What a signed URL permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Upload the archive of a job's files.
    Upload,
    /// Read the list of the files that belong into the archive.
    Files,
    /// Read an output; the subject is its path.
    Output,
}

impl Grant {
    /// Returns how long a new URL is valid.
    pub fn lasts(self) -> Duration {
        match self {
            Grant::Upload | Grant::Files => Duration::from_secs(24 * 3600),
            Grant::Output => Duration::from_secs(7 * 24 * 3600),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Grant::Upload => "upload",
            Grant::Files => "files",
            Grant::Output => "output",
        }
    }
}

/// Returns when a URL that is created now expires.
pub fn expires(control: &Control, grant: Grant) -> Time {
    control.clock().now().after(grant.lasts())
}

/// Signs a grant until `expires`, as lower-case hexadecimal.
pub fn sign(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time) -> String {
    url_mac(control, grant, job, subject, expires).to_hex().to_string()
}

/// Returns whether a signature is correct and has not expired. The comparison takes constant time.
pub fn verify(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time, signature: &str) -> bool {
    let Ok(given) = blake3::Hash::from_hex(signature) else { return false };
    given == url_mac(control, grant, job, subject, expires) && control.clock().now() < expires
}

fn url_mac(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&control.secrets().job_url_key());
    for part in
        [grant.name().as_bytes(), job.as_str().as_bytes(), &expires.as_micros().to_le_bytes(), subject.as_bytes()]
    {
        // The length prefix separates adjacent parts.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}
