//! How lists are asked for: whose rows, from where on, how many.

use tarn_model::Time;

use crate::db::Param;

/// Whose rows a list shows.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// What this user created.
    User {
        /// The user.
        user: &'a str,
        /// The scope of what the user creates now.
        scope: &'a str,
    },
    /// Everything of this scope: an organization, or a user without one.
    Scope(&'a str),
}

/// One page of a list, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// Whose rows.
    pub whose: Whose<'a>,
    /// Also what has ended.
    pub all: bool,
    /// The last row of the page before: only older ones follow.
    pub after: Option<(Time, &'a str)>,
    /// How many rows at most.
    pub limit: u32,
}

impl<'a> Listing<'a> {
    /// The parameters `$1` scope, `$2` user, `$3` and `$4` from where on, `$5` how many.
    pub(crate) fn params(&self) -> [Param<'a>; 5] {
        let (scope, user) = match self.whose {
            Whose::User { user, scope } => (scope, user),
            Whose::Scope(scope) => (scope, ""),
        };
        let (time, id) = self.after.unwrap_or((Time::from_micros(i64::MAX), ""));
        [scope.into(), user.into(), time.into(), id.into(), i64::from(self.limit).into()]
    }
}
