//! Access control: looks up the access key that signed a request, and the user and the organization it belongs to.

use std::sync::Arc;

use super::call_permits::CallPermits;
use super::open_calls::Call;
use crate::Objects;
use crate::s3::shared::errors::unknown_key;
use async_trait::async_trait;
use http::Method;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use tarn_base::fair_share::FairShare;
use tarn_model::ids::OrgId;

tokio::task_local! {
    /// The current call. The key is looked up before s3s gives the request a place to store its holder.
    pub(in crate::s3) static CALL: Arc<Call>;
}

/// Looks up the secrets of access keys.
pub(in crate::s3) struct AccessKeys(pub(in crate::s3) Objects);

#[async_trait]
impl S3Auth for AccessKeys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let Some(holder) = self.0.holder_of(access_key).await? else {
            return Err(unknown_key());
        };
        CALL.with(|call| call.identify(access_key, holder));
        Ok(SecretKey::from(self.0.secret_of(access_key)))
    }
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
    bodies: FairShare<OrgId>,
    calls: CallPermits,
}

impl AccessCheck {
    pub(in crate::s3) fn new(objects: Objects) -> Self {
        let bodies = FairShare::new(MAX_BODIES, MAX_BODIES_PER_ORGANIZATION);
        AccessCheck { objects, bodies, calls: CallPermits::default() }
    }
}

#[async_trait]
impl S3Access for AccessCheck {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let call = CALL.with(Arc::clone);
        let caller = match (cx.credentials(), call.caller.get()) {
            (Some(_), Some(caller)) => caller.clone(),
            _ => return Err(s3_error!(AccessDenied, "Anonymous calls are not allowed. Sign the request.")),
        };
        let _ = call.permit.set(self.calls.acquire(&caller.holder)?);
        self.objects.count_request(&caller.access_key, &caller.holder);
        let org = caller.org();
        let others = OWNERS.iter().filter_map(|name| cx.headers().get(*name)).any(|owner| owner != org.as_str());
        if others {
            return Err(s3_error!(AccessDenied, "The bucket does not belong to the owner that you expect."));
        }
        if matches!(*cx.method(), Method::PUT | Method::POST) {
            // The body has not been read yet. The permit is released at the end of the call.
            let permit = self.bodies.acquire(org, 1).await;
            cx.extensions_mut().insert(Arc::new(permit));
        }
        cx.extensions_mut().insert(caller);
        Ok(())
    }
}
