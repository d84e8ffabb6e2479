//! Users, organizations and ownership: who someone is and what is his.

use crate::Time;
use crate::ids::{OrgId, UserId};

/// Whose something is: its creator and, when he has one, his organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who created it.
    pub user: UserId,
    /// The creator's organization at that time.
    pub org: Option<OrgId>,
}

impl Owner {
    /// Within what names are unique and money is shared: the organization, or the user without one.
    pub fn scope(&self) -> &str {
        self.org.as_ref().map_or(self.user.as_str(), OrgId::as_str)
    }
}

/// A person or program that calls, as the API key tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The id.
    pub id: UserId,
    /// The e-mail address, which is also the login name.
    pub email: String,
    /// The organization, if any.
    pub org: Option<OrgId>,
    /// Whether the user administers that organization.
    pub org_admin: bool,
    /// Whether the user administers this engine.
    pub engine_admin: bool,
    /// Whether the user has been shut out.
    pub disabled: bool,
    /// When the user was made.
    pub created: Time,
}

impl User {
    /// What the user creates belongs to this owner.
    pub fn owner(&self) -> Owner {
        Owner { user: self.id.clone(), org: self.org.clone() }
    }

    /// Whether the user may see, use and change what belongs to `owner`: his own, and all of his organization's.
    pub fn may_access(&self, owner: &Owner) -> bool {
        match (&self.org, &owner.org) {
            (Some(mine), Some(theirs)) => mine == theirs,
            (_, None) => self.id == owner.user,
            // What was made for an organization stays with it when its maker leaves.
            (None, Some(_)) => false,
        }
    }
}

/// An organization: its members share resources and one balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    /// The id.
    pub id: OrgId,
    /// The name, unique on this engine.
    pub name: String,
    /// When it was made.
    pub created: Time,
}

/// Whether a text can be an e-mail address: something, one `@`, a domain; no blanks or control characters; bounded.
pub fn is_email(text: &str) -> bool {
    let plain = text.len() <= 254 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    plain
        && text
            .split_once('@')
            .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'))
}

/// Whether a text can name an organization: 1 to 100 characters, none of them a control character, no blanks at the ends.
pub fn is_org_name(text: &str) -> bool {
    let length = text.chars().count();
    (1..=100).contains(&length) && !text.chars().any(char::is_control) && text.trim() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str, org: Option<&str>) -> User {
        User {
            id: id.parse().unwrap(),
            email: "a@b".into(),
            org: org.map(|org| org.parse().unwrap()),
            org_admin: false,
            engine_admin: false,
            disabled: false,
            created: Time::ZERO,
        }
    }

    #[test]
    fn members_share_and_strangers_do_not() {
        let (me, other) = ("u-000000000001", "u-000000000002");
        let (ours, theirs) = (Some("o-000000000001"), Some("o-000000000002"));
        assert!(user(me, ours).may_access(&user(other, ours).owner()));
        assert!(!user(me, ours).may_access(&user(other, theirs).owner()));
        assert!(!user(me, None).may_access(&user(other, None).owner()));
        assert!(user(me, None).may_access(&user(me, None).owner()));
        assert!(user(me, ours).may_access(&user(me, None).owner()), "what he made before he joined stays his");
        assert!(
            !user(me, theirs).may_access(&user(me, ours).owner()),
            "what he made for a former organization is theirs"
        );
    }

    #[test]
    fn addresses() {
        assert!(is_email("admin@localhost"));
        for text in ["", "@", "a@", "@b", "a b@c", "a@b@c", "a\0@b"] {
            assert!(!is_email(text), "{text:?}");
        }
    }
}
