//! Signatures of the URLs by which the files of a job come and go: whoever has one may do what it says until it expires, and
//! nothing else. The addresses themselves are not known here.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::JobId;

use crate::Control;

/// What a URL is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Sending the archive of a job's files.
    Upload,
    /// Reading the list of the files that belong into it.
    Files,
    /// Reading an output; the subject is its path.
    Output,
}

impl Grant {
    /// How long a URL is good from now on.
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

/// When a URL that is made now expires.
pub fn expires(control: &Control, grant: Grant) -> Time {
    control.clock().now().after(grant.lasts())
}

/// Signs what is granted until `expires`, as lower-case hexadecimal.
pub fn sign(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time) -> String {
    code(control, grant, job, subject, expires).to_hex().to_string()
}

/// Whether a signature is right and has not expired. How wrong it is cannot be told from the time that this takes.
pub fn verify(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time, signature: &str) -> bool {
    let Ok(given) = blake3::Hash::from_hex(signature) else { return false };
    given == code(control, grant, job, subject, expires) && control.clock().now() < expires
}

fn code(control: &Control, grant: Grant, job: &JobId, subject: &str, expires: Time) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&control.secrets().job_url_key());
    for part in
        [grant.name().as_bytes(), job.as_str().as_bytes(), &expires.as_micros().to_le_bytes(), subject.as_bytes()]
    {
        // With its length before it, no part can be taken for the beginning of the next.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}
