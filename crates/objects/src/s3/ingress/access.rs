//! Access control: looks up the access key that signed a request, and the user and the organization it belongs to.

use std::sync::{Arc, OnceLock};

use super::open_calls::{CallKey, SignedBy};
use super::places::Places;
use crate::Objects;
use async_trait::async_trait;
use http::Method;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3Result, s3_error};
use tarn_base::fair_share::FairShare;
use tarn_model::ids::OrgId;

tokio::task_local! {
    /// The key of the current request and its holder. The signature is checked before the request has a place to store
    /// them.
    pub(in crate::s3) static CALLER: CallKey;
}

/// Looks up the secrets of access keys.
pub(in crate::s3) struct AccessKeys(pub(in crate::s3) Objects);

#[async_trait]
impl S3Auth for AccessKeys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let Some(holder) = self.0.holder_of(access_key).await? else {
            return Err(unknown_key());
        };
        // Outside of a request there is no slot, and the access check looks the key up again.
        let signed = SignedBy { access_key: access_key.to_owned(), holder, place: OnceLock::new() };
        let _ = CALLER.try_with(|caller| caller.set(signed).is_ok());
        Ok(SecretKey::from(self.0.secret_of(access_key)))
    }
}

/// The refusal of a key that does not exist, or no longer works.
pub(in crate::s3) fn unknown_key() -> S3Error {
    s3_error!(
        InvalidAccessKeyId,
        "The AWS Access Key Id you provided does not exist in our records. Ask for the current credentials."
    )
}

/// Headers in which a client names the owner that it expects a bucket to have.
const OWNERS: [&str; 2] = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// How many calls with a body run at the same time, and how many of one organization. Each holds some memory; others
/// wait with their bodies unread.
const MAX_BODIES: usize = 256;
const MAX_BODIES_PER_ORGANIZATION: usize = 64;

/// Admits signed requests, and those with a body only with a permit.
pub(in crate::s3) struct AccessCheck {
    objects: Objects,
    permits: FairShare<OrgId>,
    places: Places,
}

impl AccessCheck {
    pub(in crate::s3) fn new(objects: Objects) -> Self {
        let permits = FairShare::new(MAX_BODIES, MAX_BODIES_PER_ORGANIZATION);
        AccessCheck { objects, permits, places: Places::default() }
    }
}

#[async_trait]
impl S3Access for AccessCheck {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "Anonymous calls are not allowed. Sign the request."));
        };
        let known = CALLER.try_with(|caller| caller.get().map(|signed| signed.holder.clone())).ok().flatten();
        let holder = match known {
            Some(holder) => holder,
            None => {
                let found = self.objects.holder_of(&credentials.access_key).await?;
                found.ok_or_else(|| s3_error!(InvalidAccessKeyId))?
            }
        };
        let place = self.places.acquire(&holder)?;
        // Outside of a request there is no slot, and the place is not needed.
        let _ = CALLER.try_with(|caller| caller.get().map(|signed| signed.place.set(place)));
        self.objects.count_request(&credentials.access_key, &holder);
        let org = holder.org;
        let others = OWNERS.iter().filter_map(|name| cx.headers().get(*name)).any(|owner| owner != org.as_str());
        if others {
            return Err(s3_error!(AccessDenied, "The bucket does not belong to the owner that you expect."));
        }
        if matches!(*cx.method(), Method::PUT | Method::POST) {
            // The body has not been read yet. The permit is released at the end of the call.
            let permit = self.permits.acquire(&org, 1).await;
            cx.extensions_mut().insert(Arc::new(permit));
        }
        if let Some(user) = holder.user {
            cx.extensions_mut().insert(user);
        }
        cx.extensions_mut().insert(org);
        Ok(())
    }
}
