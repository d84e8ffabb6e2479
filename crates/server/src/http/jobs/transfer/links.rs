//! Signed URLs, which need no key: each is valid for one purpose and one job, for a limited time, and only as long as
//! the caller who got it has access.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tarn_control::jobs::signed::{self, Grant, Signature};
use tarn_control::{Caller, Control};
use tarn_model::Time;
use tarn_model::ids::JobId;
use utoipa::IntoParams;

use crate::App;
use crate::http::input::address::Address;
use crate::http::input::query::{Fields, FromQuery};
use crate::http::middleware::authenticate::count_connection;
use crate::http::middleware::observe::CallRecord;
use crate::http::output::failure::Failure;
use crate::serve::ConnectionOfCall;

/// A call without a key: what is known of it before its signature is checked.
pub(crate) struct SignedCall {
    record: Option<Arc<CallRecord>>,
    connection: Option<ConnectionOfCall>,
}

impl SignedCall {
    /// The address of the client.
    pub(in crate::http::jobs) fn address(&self) -> Option<IpAddr> {
        self.record.as_ref().and_then(|record| record.address())
    }
}

impl<S: Sync> FromRequestParts<S> for SignedCall {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(SignedCall { record: parts.extensions.get().cloned(), connection: parts.extensions.get().cloned() })
    }
}

/// The signature of a URL.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SignatureQuery {
    /// When the URL expires, in seconds since 1970.
    #[param(minimum = 0)]
    expires: i64,
    /// The user who got the URL. URLs without it are from before an upgrade, and are refused.
    #[param(required = false)]
    user: Option<String>,
    /// The ID of the API key that the URL was requested with.
    #[param(required = false)]
    key: Option<String>,
    /// The signature that the engine made.
    signature: String,
}

impl FromQuery for SignatureQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let expires = fields.required_number("expires", 0..=i64::MAX / 1_000_000);
        let (user, key) = (fields.text("user"), fields.text("key"));
        SignatureQuery { expires, user, key, signature: fields.required_text("signature") }
    }
}

impl SignatureQuery {
    /// Returns the caller who got the URL and the job, if the signature is valid for this purpose. The connection
    /// counts for the caller.
    pub(in crate::http::jobs) async fn verify_caller(
        self,
        app: &App,
        call: &SignedCall,
        grant: Grant,
        job: &str,
        subject: &str,
    ) -> Result<(Caller, JobId), Failure> {
        let (Some(user), Some(key)) = (self.user, self.key) else { return Err(signed::outdated_url().into()) };
        let invalid = |_| signed::invalid_url();
        let job: JobId = job.parse().map_err(invalid)?;
        let expires = Time::from_micros(self.expires * 1_000_000);
        let (user, key) = (user.parse().map_err(invalid)?, key.parse().map_err(invalid)?);
        let signature = Signature { expires, user, key, mac: self.signature };
        let caller = signed::verify(&app.control, grant, &job, subject, &signature).await?;
        count_connection(app, call.connection.as_ref(), &caller)?;
        let caller = match &call.record {
            Some(record) => record.identify(caller),
            None => caller,
        };
        Ok((caller, job))
    }
}

/// Returns the URL for uploading the archive of a job's files.
pub(in crate::http::jobs) fn upload_url(control: &Control, caller: &Caller, address: &Address, job: &JobId) -> String {
    let signature = signed::sign(control, caller, Grant::Upload, job, "");
    signed_url(address, "upload", job, None, signature)
}

/// Returns the URL of the list of a job's files.
pub(in crate::http::jobs) fn file_list_url(
    control: &Control,
    caller: &Caller,
    address: &Address,
    job: &JobId,
) -> String {
    let signature = signed::sign(control, caller, Grant::Files, job, "");
    signed_url(address, "files", job, None, signature)
}

/// Returns the URL of an output of a job.
pub(in crate::http::jobs) fn output_url(
    control: &Control,
    caller: &Caller,
    address: &Address,
    job: &JobId,
    path: &str,
) -> String {
    let signature = signed::sign(control, caller, Grant::Output, job, path);
    signed_url(address, "output", job, Some(path), signature)
}

fn signed_url(
    Address(address): &Address,
    endpoint: &str,
    job: &JobId,
    path: Option<&str>,
    Signature { expires, user, key, mac }: Signature,
) -> String {
    let expires = (expires.as_micros() / 1_000_000).to_string();
    let signature =
        [("expires", expires.as_str()), ("user", user.as_str()), ("key", key.as_str()), ("signature", &mac)];
    let parameters: Vec<(&str, &str)> = path.map(|path| ("path", path)).into_iter().chain(signature).collect();
    let query = serde_urlencoded::to_string(parameters).expect("strings can always be encoded");
    format!("{address}/job/{endpoint}/{job}?{query}")
}
