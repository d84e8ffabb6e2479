//! Parameters of a list: which owner's rows, after which row, and how many.

use tarn_model::Time;

use crate::db::Param;

/// Selects the rows of one user or of one scope.
#[derive(Clone, Copy, Debug)]
pub enum OwnerFilter<'a> {
    /// The rows that this user created.
    User {
        user: &'a str,
        /// The scope of new rows of this user.
        scope: &'a str,
    },
    /// All rows of this scope: an organization, or a user without one.
    Scope(&'a str),
}

/// One page of a list, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    pub owner: OwnerFilter<'a>,
    /// Includes rows that have ended.
    pub all: bool,
    /// The last row of the previous page. Only older rows follow.
    pub after: Option<(Time, &'a str)>,
    /// The maximum number of rows.
    pub limit: u32,
}

impl<'a> Listing<'a> {
    /// The parameters: `$1` the owner, `$2` and `$3` the last row of the previous page, `$4` the limit.
    pub(crate) fn params(&self) -> Vec<Param<'a>> {
        let (OwnerFilter::User { user: owner, .. } | OwnerFilter::Scope(owner)) = self.owner;
        let (time, id) = self.after.unwrap_or((Time::from_micros(i64::MAX), ""));
        vec![Param::Text(owner), Param::Integer(time.as_micros()), Param::Text(id), Param::Integer(self.limit.into())]
    }

    /// The same parameters and, when all rows of one user are listed, `$5` the user's scope: the index of all rows
    /// starts with the scope.
    pub(crate) fn params_with_scope(&self) -> Vec<Param<'a>> {
        let mut params = self.params();
        if let (OwnerFilter::User { scope, .. }, true) = (self.owner, self.all) {
            params.push(Param::Text(scope));
        }
        params
    }
}

/// The four queries behind a list of things that end by being DESTROYED: by user or by scope, with or without ended
/// rows. `$select` is the macro of the noun that puts its columns in front.
macro_rules! list_sql {
    ($select:ident, $listing:expr) => {
        match ($listing.owner, $listing.all) {
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
