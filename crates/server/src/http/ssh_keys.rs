//! The endpoints for saved SSH keys. They have the tag `user`.

use tarn_api::health::MessageResponse;
use tarn_api::ssh_keys::{
    SSHKeyChallengeResponse, SSHKeyCreateRequest, SSHKeyCreateResponse, SSHKeyInfo, SSHKeyListResponse,
    SSHKeyProveRequest,
};
use tarn_control::operations::{ssh_keys, ssh_proofs};
use tarn_model::ssh_keys::SshKey;
use tarn_model::ssh_proofs::NAMESPACE;

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall, ReadCall};
use crate::http::input::id::Id;
use crate::http::input::listing::OrgQuery;
use crate::http::input::query::Params;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::Table;

impl Body for SSHKeyCreateRequest {}
impl Body for SSHKeyProveRequest {}

/// Add an SSH key
///
/// Save a public key. Within seconds it opens all clusters of the user and the organization, including running ones.
#[utoipa::path(
    post,
    path = "/user/ssh-key/add",
    operation_id = "user_ssh_key_add",
    request_body = SSHKeyCreateRequest,
    responses(
        (status = 200, description = "The key was saved", body = SSHKeyCreateResponse),
        (status = 400, description = "Not an SSH public key, or invalid name"),
        (status = 409, description = "Key saved already, or too many keys"),
    ),
)]
pub(crate) async fn add_ssh_key(call: Call<SSHKeyCreateRequest>) -> EndpointResult<SSHKeyCreateResponse> {
    let SSHKeyCreateRequest { public_key, name } = call.body;
    let added = ssh_keys::add(&call.control, &call.caller, &public_key, name).await?;
    Ok(JsonResponse::ok(SSHKeyCreateResponse { key_id: added.key.into(), message: added.message }))
}

/// List SSH keys
///
/// The keys that the caller saved or, with include_org, all keys of the organization.
#[utoipa::path(
    get,
    path = "/user/ssh-key/list",
    operation_id = "user_ssh_key_list",
    params(OrgQuery),
    responses((status = 200, description = "The keys", body = SSHKeyListResponse)),
)]
pub(crate) async fn list_ssh_keys(
    call: ReadCall,
    Params(query): Params<OrgQuery>,
) -> EndpointResult<SSHKeyListResponse> {
    let keys = ssh_keys::list(&call.control, &call.caller, query.include_org).await?;
    let message = match keys.as_slice() {
        [] => "No SSH keys. Add one with `tp me sshkey add ~/.ssh/id_ed25519.pub`.".to_owned(),
        keys => ssh_key_table(keys),
    };
    Ok(JsonResponse::ok(SSHKeyListResponse { keys: keys.into_iter().map(ssh_key_info).collect(), message }))
}

fn ssh_key_table(keys: &[SshKey]) -> String {
    let mut table = Table::new(["ID", "NAME", "FINGERPRINT", "CREATED"], keys.len());
    for key in keys {
        table.row([&key.id, &key.name, &key.fingerprint, &key.created]);
    }
    table.render()
}

fn ssh_key_info(key: SshKey) -> SSHKeyInfo {
    SSHKeyInfo {
        id: key.id.into(),
        name: key.name,
        public_key: key.public_key,
        fingerprint: key.fingerprint,
        created_at: key.created.to_string(),
        owner: key.owner.user.into(),
        org_id: key.owner.org.map(Into::into),
    }
}

/// Remove an SSH key
///
/// Delete a saved key. Within seconds it opens nothing, not even a cluster of the user and the organization that was
/// created with it.
#[utoipa::path(
    delete,
    path = "/user/ssh-key/remove/{key_id}",
    operation_id = "user_ssh_key_remove",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The key was removed", body = MessageResponse),
        (status = 400, description = "Invalid SSH key ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "SSH key not found"),
    ),
)]
pub(crate) async fn remove_ssh_key(call: ChangeCall, Id(key): Id) -> EndpointResult<MessageResponse> {
    let message = ssh_keys::remove(&call.control, &call.caller, &key).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}

/// Request a challenge for an SSH key
///
/// A text that the holder of a key signs, with `ssh-keygen -Y sign`, to prove that the key is theirs. It is valid for a
/// few minutes, for one key of one user.
#[utoipa::path(
    get,
    path = "/user/ssh-key/challenge/{key_id}",
    operation_id = "user_ssh_key_challenge",
    params(("key_id" = String, Path)),
    responses(
        (status = 200, description = "The challenge", body = SSHKeyChallengeResponse),
        (status = 400, description = "Invalid SSH key ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "SSH key not found"),
    ),
)]
pub(crate) async fn get_ssh_key_challenge(call: ReadCall, Id(key): Id) -> EndpointResult<SSHKeyChallengeResponse> {
    let ssh_proofs::Challenge { text, expires } = ssh_proofs::challenge(&call.control, &call.caller, &key).await?;
    let message =
        format!("Sign this text until {expires}: printf %s '{text}' | ssh-keygen -Y sign -f KEY -n {NAMESPACE}");
    Ok(JsonResponse::ok(SSHKeyChallengeResponse {
        challenge: text,
        namespace: NAMESPACE.to_owned(),
        expires_at: expires.to_string(),
        message,
    }))
}

/// Prove an SSH key
///
/// Show that the caller holds the private half of a saved key, with the signature of a challenge. From then
/// on the names of the clusters of the user and the organization work with it, also while others have saved it. Another
/// proof changes nothing.
#[utoipa::path(
    post,
    path = "/user/ssh-key/prove/{key_id}",
    operation_id = "user_ssh_key_prove",
    params(("key_id" = String, Path)),
    request_body = SSHKeyProveRequest,
    responses(
        (status = 200, description = "The key is proven", body = MessageResponse),
        (status = 400, description = "Invalid SSH key ID format, invalid challenge, or not an SSH signature"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "SSH key not found"),
        (status = 409, description = "The signature proves nothing"),
    ),
)]
pub(crate) async fn prove_ssh_key(Id(key): Id, call: Call<SSHKeyProveRequest>) -> EndpointResult<MessageResponse> {
    let SSHKeyProveRequest { challenge, signature } = &call.body;
    let message = ssh_proofs::prove(&call.control, &call.caller, &key, challenge, signature).await?;
    Ok(JsonResponse::ok(MessageResponse { message: Some(message) }))
}
