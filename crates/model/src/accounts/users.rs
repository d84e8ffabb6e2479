//! Users, organizations and ownership.

use crate::Time;
use crate::ids::{OrgId, UserId};

/// The owner of a resource: its creator and, if they have one, their organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The creator.
    pub user: UserId,
    /// The creator's organization at that time.
    pub org: Option<OrgId>,
}

impl Owner {
    /// Returns the scope in which names are unique and money is shared: the organization, or the user without one.
    pub fn scope(&self) -> &str {
        self.org.as_ref().map_or(self.user.as_str(), OrgId::as_str)
    }
}

/// A user, whom an API key identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    /// Also the login name.
    pub email: String,
    pub org: Option<OrgId>,
    /// Whether the user administers their organization.
    pub org_admin: bool,
    /// Whether the user administers this engine.
    pub engine_admin: bool,
    /// Whether the keys of the user are refused.
    pub disabled: bool,
    pub created: Time,
}

impl User {
    /// Returns the owner of what the user creates.
    pub fn owner(&self) -> Owner {
        Owner { user: self.id.clone(), org: self.org.clone() }
    }
}

/// An organization: its members share resources and one balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    pub id: OrgId,
    /// The name, unique on this engine.
    pub name: String,
    pub created: Time,
}

/// Returns whether a text can be an e-mail address: something, one `@`, a domain; no whitespace or control characters;
/// bounded.
pub fn is_email(text: &str) -> bool {
    let plain = text.len() <= 254 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    plain
        && text
            .split_once('@')
            .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'))
}

/// Returns whether a text is a valid name of an organization: 1 to 100 characters, none of them a control character, no
/// whitespace at the ends.
pub fn is_org_name(text: &str) -> bool {
    let length = text.chars().count();
    (1..=100).contains(&length) && !text.chars().any(char::is_control) && text.trim() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_addresses_are_checked() {
        assert!(is_email("admin@localhost"));
        for text in ["", "@", "a@", "@b", "a b@c", "a@b@c", "a\0@b"] {
            assert!(!is_email(text), "{text:?}");
        }
    }
}
