//! The refusal of a member who wants to take away what another member created: it names the users who can.

use tarn_model::access::{Action, Object, Relation};
use tarn_model::ids::{OrgId, UserId};
use tarn_store::{Tx, users};

use crate::error::quote_input;
use crate::{Error, Kind, Result};

/// How many administrators are named.
const MAX_NAMED: usize = 3;

/// Returns the refusal. Users who are disabled or have left cannot help, so they are not named.
pub(super) fn not_yours(tx: &mut Tx<'_>, action: Action, object: Object<'_>, id: &str) -> Result<Error> {
    let (creator, administrators) = match object {
        Object::Owned { creator, org } => (creator_email(tx, creator, object)?, administrators(tx, org, creator)?),
        Object::Engine => (None, Vec::new()),
    };
    let (only, ask) = describe_permitted(creator.as_deref(), &administrators);
    let message = format!("only {only} can {} {}; ask {ask}", action.name(), quote_input(id));
    Ok(Error::new(Kind::Forbidden, "not_yours", message))
}

fn creator_email(tx: &mut Tx<'_>, creator: Option<&UserId>, object: Object<'_>) -> Result<Option<String>> {
    let Some(creator) = creator else { return Ok(None) };
    let user = users::get(tx, creator)?;
    let able = user.filter(|user| !user.disabled && Relation::between(user, object) == Relation::Creator);
    Ok(able.map(|user| user.email))
}

/// The administrators of the organization, except the creator; one more than are named.
fn administrators(tx: &mut Tx<'_>, org: Option<&OrgId>, creator: Option<&UserId>) -> Result<Vec<String>> {
    let Some(org) = org else { return Ok(Vec::new()) };
    let found = users::administrators(tx, org, MAX_NAMED as u32 + 2)?;
    let others = found.into_iter().filter(|user| Some(&user.id) != creator);
    Ok(others.take(MAX_NAMED + 1).map(|user| user.email).collect())
}

/// Returns the users who can, and whom to ask.
fn describe_permitted(creator: Option<&str>, administrators: &[String]) -> (String, &'static str) {
    let named = administrators.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if administrators.len() > MAX_NAMED { ", …" } else { "" };
    let noun = if administrators.len() == 1 { "administrator" } else { "administrators" };
    match (creator, administrators) {
        (Some(creator), []) => (format!("{creator}, who created it,"), "them"),
        (Some(creator), [..]) => {
            (format!("{creator}, who created it, and the organization's {noun} ({named}{more})"), "one of them")
        }
        (None, []) => {
            ("an administrator of the organization".to_owned(), "an administrator of this engine to name one")
        }
        (None, [_]) => (format!("the organization's administrator ({named})"), "them"),
        (None, [..]) => (format!("the organization's administrators ({named}{more})"), "one of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_users_are_few() {
        let many: Vec<String> = (0..9).map(|n| format!("{n}@x")).collect();
        let only = |creator, all: &[String]| describe_permitted(creator, all).0;
        assert_eq!(only(Some("a@x"), &[]), "a@x, who created it,");
        assert_eq!(only(Some("a@x"), &many[..1]), "a@x, who created it, and the organization's administrator (0@x)");
        assert_eq!(only(None, &many[..2]), "the organization's administrators (0@x, 1@x)");
        assert_eq!(only(None, &many), "the organization's administrators (0@x, 1@x, 2@x, …)");
    }
}
