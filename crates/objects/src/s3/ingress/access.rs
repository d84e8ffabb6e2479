//! Who may enter: the keys that sign, and whose they are.

use std::sync::OnceLock;

use async_trait::async_trait;
use http::Method;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use tarn_model::ids::OrgId;

use crate::Objects;
use crate::s3::ingress::body_permits::Turns;

tokio::task_local! {
    /// Whose the key of the request at hand is. The signature is checked before there is anything to write this on.
    pub(in crate::s3) static CALLER: OnceLock<OrgId>;
}

/// Looks keys up.
pub(in crate::s3) struct Keys(pub(in crate::s3) Objects);

#[async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let Some(org) = self.0.organization_of(access_key).await? else {
            return Err(s3_error!(
                InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records. Ask for the current credentials."
            ));
        };
        // Where nobody waits for it, the gate looks again.
        let _ = CALLER.try_with(|caller| caller.set(org));
        Ok(SecretKey::from(self.0.secret_of(access_key)))
    }
}

/// Headers by which a client says whose it expects a bucket to be.
const OWNERS: [&str; 2] = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// Lets in who has signed, and who brings a body only when it is their turn.
pub(in crate::s3) struct Gate {
    objects: Objects,
    turns: Turns,
}

impl Gate {
    pub(in crate::s3) fn new(objects: Objects) -> Self {
        Gate { objects, turns: Turns::new() }
    }
}

#[async_trait]
impl S3Access for Gate {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "Anonymous calls are not allowed. Sign the request."));
        };
        let known = CALLER.try_with(|caller| caller.get().cloned()).ok().flatten();
        let org = match known {
            Some(org) => org,
            None => {
                let found = self.objects.organization_of(&credentials.access_key).await?;
                found.ok_or_else(|| s3_error!(InvalidAccessKeyId))?
            }
        };
        self.objects.count_request(&org);
        let others = OWNERS.iter().filter_map(|name| cx.headers().get(*name)).any(|owner| owner != org.as_str());
        if others {
            return Err(s3_error!(AccessDenied, "The bucket belongs to another owner than the one that you expect."));
        }
        if matches!(*cx.method(), Method::PUT | Method::POST) {
            // Nothing of the body was read before this, and the turn ends with the call.
            let turn = self.turns.take(&org).await;
            cx.extensions_mut().insert(turn);
        }
        cx.extensions_mut().insert(org);
        Ok(())
    }
}
