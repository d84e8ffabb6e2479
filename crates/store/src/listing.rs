//! How lists are asked for: whose rows, from where on, how many.

use tarn_model::Time;

use crate::db::Param;

/// Whose rows a list shows.
#[derive(Clone, Copy, Debug)]
pub enum OwnerFilter<'a> {
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
    pub whose: OwnerFilter<'a>,
    /// Also what has ended.
    pub all: bool,
    /// The last row of the page before: only older ones follow.
    pub after: Option<(Time, &'a str)>,
    /// How many rows at most.
    pub limit: u32,
}

impl<'a> Listing<'a> {
    /// The parameters `$1` whose, `$2` and `$3` from where on, `$4` how many.
    pub(crate) fn params(&self) -> Vec<Param<'a>> {
        let (OwnerFilter::User { user: whose, .. } | OwnerFilter::Scope(whose)) = self.whose;
        let (time, id) = self.after.unwrap_or((Time::from_micros(i64::MAX), ""));
        vec![whose.into(), time.into(), id.into(), self.limit.into()]
    }

    /// The same and, where all rows of one user are asked for, `$5` his scope: the index of all rows is by scope.
    pub(crate) fn params_with_scope(&self) -> Vec<Param<'a>> {
        let mut params = self.params();
        if let (OwnerFilter::User { scope, .. }, true) = (self.whose, self.all) {
            params.push(scope.into());
        }
        params
    }
}

/// The four queries behind a list of things that end by being DESTROYED: whose rows, and whether ended ones are among them.
/// `$select` is the noun's own macro that puts its columns in front.
macro_rules! list_sql {
    ($select:ident, $listing:expr) => {
        match ($listing.whose, $listing.all) {
            ($crate::OwnerFilter::User { .. }, false) => $select!(
                "where user_id = $1 and state <> 'DESTROYED' and (created_us, id) < ($2, $3) \
                 order by created_us desc, id desc limit $4"
            ),
            ($crate::OwnerFilter::User { .. }, true) => $select!(
                "where scope = $5 and user_id = $1 and (created_us, id) < ($2, $3) \
                 order by created_us desc, id desc limit $4"
            ),
            ($crate::OwnerFilter::Scope(_), false) => $select!(
                "where scope = $1 and state <> 'DESTROYED' and (created_us, id) < ($2, $3) \
                 order by created_us desc, id desc limit $4"
            ),
            ($crate::OwnerFilter::Scope(_), true) => {
                $select!("where scope = $1 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4")
            }
        }
    };
}
pub(crate) use list_sql;
