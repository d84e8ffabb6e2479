//! URLs that need no key: each is good for one thing of one job, for a while.

use tarn_control::Control;
use tarn_control::jobs::signed::{self, Grant};
use tarn_model::Time;
use tarn_model::ids::JobId;
use utoipa::IntoParams;

use axum::http::StatusCode;

use crate::http::input::address::Address;
use crate::http::input::query::{Fields, FromQuery};
use crate::http::output::failure::Failure;

/// What makes a URL good.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SignatureQuery {
    /// Until when the URL is good, in seconds since 1970.
    #[param(minimum = 0)]
    expires: i64,
    /// What the engine gave out with it.
    signature: String,
}

impl FromQuery for SignatureQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let expires = fields.required_number("expires", 0..=i64::MAX / 1_000_000);
        SignatureQuery { expires, signature: fields.required_text("signature") }
    }
}

impl SignatureQuery {
    /// The job, if the signature is one for this.
    pub(in crate::http::jobs) fn verify_job(
        &self,
        control: &Control,
        grant: Grant,
        job: &str,
        subject: &str,
    ) -> Result<JobId, Failure> {
        let wrong = || {
            let message = "this URL is not good any more, or was changed on its way; ask for a new one";
            Failure::new(StatusCode::FORBIDDEN, "invalid_signature", message)
        };
        let job: JobId = job.parse().map_err(|_| wrong())?;
        let expires = Time::from_micros(self.expires * 1_000_000);
        let good = signed::verify(control, grant, &job, subject, expires, &self.signature);
        if good { Ok(job) } else { Err(wrong()) }
    }
}

/// Where the archive of a job's files goes.
pub(in crate::http::jobs) fn upload_url(control: &Control, Address(address): &Address, job: &JobId) -> String {
    let signed = signed_parameters(control, Grant::Upload, job, "");
    format!("{address}/job/upload/{job}?{}", encode_query(&signed))
}

/// Where the list of a job's files is.
pub(in crate::http::jobs) fn file_list_url(control: &Control, Address(address): &Address, job: &JobId) -> String {
    let signed = signed_parameters(control, Grant::Files, job, "");
    format!("{address}/job/files/{job}?{}", encode_query(&signed))
}

/// Where an output of a job is.
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
    serde_urlencoded::to_string(parameters).expect("texts can always be encoded")
}
