//! Signed URLs, which need no key: each is valid for one purpose and one job, for a limited time.

use tarn_control::Control;
use tarn_control::jobs::signed::{self, Grant};
use tarn_model::Time;
use tarn_model::ids::JobId;
use utoipa::IntoParams;

use axum::http::StatusCode;

use crate::http::input::address::Address;
use crate::http::input::query::{Fields, FromQuery};
use crate::http::output::failure::Failure;

/// The signature of a URL.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SignatureQuery {
    /// When the URL expires, in seconds since 1970.
    #[param(minimum = 0)]
    expires: i64,
    /// The signature that the engine made.
    signature: String,
}

impl FromQuery for SignatureQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let expires = fields.required_number("expires", 0..=i64::MAX / 1_000_000);
        SignatureQuery { expires, signature: fields.required_text("signature") }
    }
}

impl SignatureQuery {
    /// Returns the job, if the signature is valid for this purpose.
    pub(in crate::http::jobs) fn verify_job(
        &self,
        control: &Control,
        grant: Grant,
        job: &str,
        subject: &str,
    ) -> Result<JobId, Failure> {
        let wrong = || {
            let message = "this URL has expired or was changed; request a new one";
            Failure::new(StatusCode::FORBIDDEN, "invalid_signature", message)
        };
        let job: JobId = job.parse().map_err(|_| wrong())?;
        let expires = Time::from_micros(self.expires * 1_000_000);
        let good = signed::verify(control, grant, &job, subject, expires, &self.signature);
        if good { Ok(job) } else { Err(wrong()) }
    }
}

/// Returns the URL for uploading the archive of a job's files.
pub(in crate::http::jobs) fn upload_url(control: &Control, Address(address): &Address, job: &JobId) -> String {
    let signed = signed_parameters(control, Grant::Upload, job, "");
    format!("{address}/job/upload/{job}?{}", encode_query(&signed))
}

/// Returns the URL of the list of a job's files.
pub(in crate::http::jobs) fn file_list_url(control: &Control, Address(address): &Address, job: &JobId) -> String {
    let signed = signed_parameters(control, Grant::Files, job, "");
    format!("{address}/job/files/{job}?{}", encode_query(&signed))
}

/// Returns the URL of an output of a job.
pub(in crate::http::jobs) fn output_url(
    control: &Control,
    Address(address): &Address,
    job: &JobId,
    path: &str,
) -> String {
    let [expires, signature] = signed_parameters(control, Grant::Output, job, path);
    let subject = ("path", path.to_owned());
    format!("{address}/job/output/{job}?{}", encode_query(&[subject, expires, signature]))
}

fn signed_parameters(control: &Control, grant: Grant, job: &JobId, subject: &str) -> [(&'static str, String); 2] {
    let seconds = signed::expires(control, grant).as_micros() / 1_000_000;
    let signature = signed::sign(control, grant, job, subject, Time::from_micros(seconds * 1_000_000));
    [("expires", seconds.to_string()), ("signature", signature)]
}

fn encode_query(parameters: &[(&str, String)]) -> String {
    serde_urlencoded::to_string(parameters).expect("strings can always be encoded")
}
