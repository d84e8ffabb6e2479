//! Signatures of the URLs by which clients upload and download the files of a job. A signature permits exactly one
//! action until it expires, on behalf of the caller who asked for it: the user and the API key are part of it, and it
//! is worthless once one of them has no access any more. The addresses themselves are not known here.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::access;
use tarn_model::events::{Event, JobEvent};
use tarn_model::ids::{ApiKeyId, JobId, UserId};
use tarn_model::jobs::Job;
use tarn_store::{jobs, users};

use crate::{Caller, Control, Error, JobSettings, Kind, Result};

/// How long the URL of an upload is valid: as long as a push waits for the client.
const UPLOAD_LIFETIME: Duration = Duration::from_secs(24 * 3600);

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
    fn lifetime(self, settings: &JobSettings) -> Duration {
        match self {
            Grant::Upload | Grant::Files => UPLOAD_LIFETIME,
            Grant::Output => settings.output_url,
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

/// What a signed URL carries besides the job and the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// In whole seconds.
    pub expires: Time,
    /// The user and the API key that asked for the URL.
    pub user: UserId,
    #[allow(missing_docs)]
    pub key: ApiKeyId,
    /// Lower-case hexadecimal.
    pub mac: String,
}

/// Signs a grant for a caller.
pub fn sign(control: &Control, caller: &Caller, grant: Grant, job: &JobId, subject: &str) -> Signature {
    let expires = control.clock().now().after(grant.lifetime(&control.settings().jobs));
    let expires = Time::from_micros(expires.as_micros() / 1_000_000 * 1_000_000);
    let (user, key) = (caller.user.id.clone(), caller.key.clone());
    let terms = Terms { grant, job, subject, expires, user: &user, key: &key };
    let mac = terms.mac(control).to_hex().to_string();
    Signature { expires, user, key, mac }
}

/// Returns the caller who asked for a URL, if the signature is correct and has not expired, and the caller still has
/// access to the job. The comparison takes constant time.
pub async fn verify(
    control: &Control,
    grant: Grant,
    job: &JobId,
    subject: &str,
    signature: &Signature,
) -> Result<Caller> {
    let Signature { expires, user, key, mac } = signature;
    let given = blake3::Hash::from_hex(mac).map_err(|_| invalid_url())?;
    let terms = Terms { grant, job, subject, expires: *expires, user, key };
    if given != terms.mac(control) || control.clock().now() >= *expires {
        return Err(invalid_url());
    }
    let read = control.store().read(|tx| -> Result<Caller> {
        let holder = users::holder(tx, key)?.filter(|holder| holder.id == *user && !holder.disabled);
        let holder = holder.ok_or_else(revoked_url)?;
        if jobs::get(tx, job)?.is_some_and(|job| !access::may_use(&holder, &job.owner)) {
            return Err(revoked_url());
        }
        let policy = control.settings().access;
        Ok(Caller { user: holder, key: key.clone(), policy, idempotency: None, address: None, call: None })
    });
    read.await
}

/// Records that a caller got signed URLs: one event for all URLs of a call.
pub async fn record_issued(control: &Control, caller: &Caller, job: &Job, grant: Grant, count: usize) -> Result<()> {
    let signed = JobEvent::UrlsSigned { grant: grant.name().to_owned(), count: count as u64 };
    control.record_shown(caller, job.owner.scope(), Event::Job(job.id.clone(), signed)).await
}

/// The refusal of a URL that is not valid.
pub fn invalid_url() -> Error {
    let message = "this URL has expired or was changed; request a new one";
    Error::new(Kind::Forbidden, "invalid_signature", message)
}

/// The refusal of a URL that an older version of the engine made: it does not say who asked for it.
pub fn outdated_url() -> Error {
    let message = "this URL is from before an upgrade of the engine; push again to upload, or pull again to download";
    Error::new(Kind::Forbidden, "invalid_signature", message)
}

/// The refusal of a URL whose user or API key lost access.
pub(crate) fn revoked_url() -> Error {
    let message = "the user or the API key that asked for this URL no longer has access; request a new one";
    Error::new(Kind::Forbidden, "url_revoked", message)
}

/// What the signature of a URL covers.
struct Terms<'a> {
    grant: Grant,
    job: &'a JobId,
    subject: &'a str,
    expires: Time,
    user: &'a UserId,
    key: &'a ApiKeyId,
}

impl Terms<'_> {
    fn mac(&self, control: &Control) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&control.secrets().job_url_key());
        for part in [
            self.grant.name().as_bytes(),
            self.job.as_str().as_bytes(),
            &self.expires.as_micros().to_le_bytes(),
            self.subject.as_bytes(),
            self.user.as_str().as_bytes(),
            self.key.as_str().as_bytes(),
        ] {
            // The length prefix separates adjacent parts.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}
