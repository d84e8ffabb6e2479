//! A bucket with an object, written and read by S3's own protocol.

use http::Method;
use serde_json::Value;

use super::Trial;
use super::signing::{Keys, call};
use crate::commands::Context;
use crate::failure::{ExitCodes, Failure, Result};
use crate::output::required;

/// What the object is called.
pub(super) const OBJECT: &str = "proof.txt";

pub(super) async fn run(trial: &mut Trial<'_, '_>) {
    let (ctx, name) = (trial.ctx, trial.name.clone());
    let found = ctx.engine.get("/object-storage/credentials", &[]).await;
    // It was not enabled before, and whatever is heard of the call that enables it, it is not to stay so.
    trial.has_enabled = matches!(&found, Err(failure) if failure.code() == ExitCodes::NOT_FOUND);
    let Some(keys) = trial.step("object storage keys", find_keys(ctx, found)).await else { return };
    let create = async {
        ctx.engine.uninterrupted().act(Method::PUT, &format!("/object-storage/bucket/create/{name}")).await?;
        Ok(name.clone())
    };
    if !trial.act("bucket create", create).await {
        return;
    }
    let (address, date) = (keys.object(&name, OBJECT), trial.means.date);
    let put = async {
        call(&keys, &Method::PUT, &address, name.as_bytes(), &date()).await?;
        Ok(format!("{} bytes to {}", name.len(), keys.endpoint))
    };
    if !trial.act("object put", put).await {
        return;
    }
    let get = async {
        match call(&keys, &Method::GET, &address, b"", &date()).await? == name.as_bytes() {
            true => Ok("it is what was put".to_owned()),
            false => Err(Failure::new("the object is not what was put")),
        }
    };
    trial.act("object get", get).await;
}

/// The keys of the account, which is made for this where there was none.
async fn find_keys(ctx: &Context<'_>, found: Result<Value>) -> Result<(Keys, String)> {
    match found {
        Err(failure) if failure.code() == ExitCodes::NOT_FOUND => {
            let body = ctx.engine.uninterrupted().act(Method::POST, "/object-storage/enable").await?;
            Ok((keys_of(&body)?, "object storage was enabled for this".to_owned()))
        }
        found => Ok((keys_of(&found?)?, "object storage is enabled".to_owned())),
    }
}

/// The keys in an answer.
pub(super) fn keys_of(body: &Value) -> Result<Keys> {
    let get = |name| required(body, name).map(str::to_owned);
    Ok(Keys {
        access_key: get("access_key_id")?,
        secret: get("secret_access_key")?,
        endpoint: get("endpoint")?.trim_end_matches('/').to_owned(),
        region: get("region")?,
    })
}
