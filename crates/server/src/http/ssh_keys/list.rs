//! GET /user/ssh-key/list

use axum::extract::State;
use tarn_api::ssh_keys::{SSHKeyInfo, SSHKeyListResponse};
use tarn_control::operations::ssh_keys;
use tarn_model::ssh_keys::SshKey;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::listing::OrgQuery;
use crate::http::query::Params;
use crate::http::table::Table;

/// List SSH keys
///
/// The keys that the caller saved or, with include_org, all of the organization's.
#[utoipa::path(
    get,
    path = "/user/ssh-key/list",
    operation_id = "user_ssh_key_list",
    tag = "user",
    params(OrgQuery),
    responses((status = 200, description = "The keys", body = SSHKeyListResponse)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params(whose): Params<OrgQuery>,
) -> Outcome<SSHKeyListResponse> {
    let keys = ssh_keys::list(&app.control, &caller, whose.include_org).await?;
    let message = match keys.as_slice() {
        [] => "No SSH keys. Add one with `tp me sshkey add ~/.ssh/id_ed25519.pub`.".to_owned(),
        keys => table(keys),
    };
    Ok(Answer::ok(SSHKeyListResponse { keys: keys.into_iter().map(info).collect(), message }))
}

fn table(keys: &[SshKey]) -> String {
    let mut table = Table::new(["ID", "NAME", "FINGERPRINT", "CREATED"], keys.len());
    for key in keys {
        table.row([&key.id, &key.name, &key.fingerprint, &key.created]);
    }
    table.render()
}

fn info(key: SshKey) -> SSHKeyInfo {
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
