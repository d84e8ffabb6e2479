//! The `[organization]` section.

use serde::{Deserialize, Serialize};
use tarn_model::access::Policy;

/// What members of an organization may do to each other.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Organization {
    /// Absent: no, except in installations that are older than the key.
    members_may_destroy: Option<bool>,
}

impl Organization {
    /// Returns the policy, and a warning where an older installation keeps the more permissive one.
    pub(crate) fn policy(&self, keeps_permissive_defaults: bool) -> (Policy, Option<&'static str>) {
        let members_may_destroy = self.members_may_destroy.unwrap_or(keeps_permissive_defaults);
        let warning = "every member of an organization may destroy what other members created, because this installation \
                       is older than the restriction; set members_may_destroy = false in [organization] to leave that to \
                       creators and administrators, or true to keep it without this warning";
        let kept = keeps_permissive_defaults && self.members_may_destroy.is_none();
        (Policy { members_may_destroy }, kept.then_some(warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A written value always counts; without one an older installation keeps what it had, and says so.
    #[test]
    fn older_installation_stays_open_until_closed() {
        let decided = |written, older| {
            let (policy, warning) = Organization { members_may_destroy: written }.policy(older);
            (policy.members_may_destroy, warning.is_some())
        };
        assert_eq!(decided(None, false), (false, false));
        assert_eq!(decided(None, true), (true, true));
        assert_eq!(decided(Some(false), true), (false, false));
        assert_eq!(decided(Some(true), true), (true, false));
        assert_eq!(decided(Some(true), false), (true, false));
    }
}
