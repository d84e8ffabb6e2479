//! The steps with a bucket and an object, over the S3 protocol.

use http::Method;
use serde_json::Value;

use super::Trial;
use super::signing::{Keys, signed_call};
use crate::commands::Context;
use crate::failure::{ExitCodes, Failure, Result};
use crate::terminal::output::required_field;

/// The key of the object.
pub(super) const OBJECT: &str = "proof.txt";

pub(super) async fn run_bucket_steps(trial: &mut Trial<'_, '_>) {
    let (ctx, name) = (trial.ctx, trial.name.clone());
    let found = ctx.api.get("/object-storage/credentials", &[]).await;
    // Object storage was not enabled before, so it is disabled afterwards, even if the response to the call is lost.
    trial.has_enabled = matches!(&found, Err(failure) if failure.code() == ExitCodes::NOT_FOUND);
    let Some(keys) = trial.run_step("object storage keys", ensure_keys(ctx, found)).await else { return };
    let create = async {
        ctx.api.uninterrupted().send_empty(Method::PUT, &format!("/object-storage/bucket/create/{name}")).await?;
        Ok(name.clone())
    };
    if !trial.run_action("bucket create", create).await {
        return;
    }
    let (address, date) = (keys.object(&name, OBJECT), trial.options.date);
    let put = async {
        signed_call(&keys, &Method::PUT, &address, name.as_bytes(), &date()).await?;
        Ok(format!("{} bytes to {}", name.len(), keys.endpoint))
    };
    if !trial.run_action("object put", put).await {
        return;
    }
    let get = async {
        if signed_call(&keys, &Method::GET, &address, b"", &date()).await? == name.as_bytes() {
            Ok("the content is as written".to_owned())
        } else {
            Err(Failure::new("the object does not have the content that was written"))
        }
    };
    trial.run_action("object get", get).await;
}

/// The keys of the account. Object storage is enabled if it was not.
async fn ensure_keys(ctx: &Context<'_>, found: Result<Value>) -> Result<(Keys, String)> {
    match found {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => {
            let body = ctx.api.uninterrupted().send_empty(Method::POST, "/object-storage/enable").await?;
            Ok((parse_keys(&body)?, "object storage was enabled for the trial".to_owned()))
        }
        found => Ok((parse_keys(&found?)?, "object storage is enabled".to_owned())),
    }
}

/// Reads the keys from a response.
pub(super) fn parse_keys(body: &Value) -> Result<Keys> {
    let get = |name| required_field(body, name).map(str::to_owned);
    Ok(Keys {
        access_key: get("access_key_id")?,
        secret: get("secret_access_key")?,
        endpoint: get("endpoint")?.trim_end_matches('/').to_owned(),
        region: get("region")?,
    })
}
