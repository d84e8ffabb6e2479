//! The parameters that lists have in common.

use tarn_control::Listing;
use tarn_control::page::MAX_LIMIT;
use utoipa::IntoParams;

use crate::http::input::query::{Fields, FromQuery};

/// The parameters of lists of what callers own.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// List everything of the organization instead of what the caller created; also accepted as `org`.
    #[param(required = false, default = false)]
    include_org: bool,
    /// Include what has been destroyed.
    #[param(required = false, default = false)]
    all: bool,
    /// Maximum number of rows.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// Where the previous page ended.
    cursor: Option<String>,
}

impl FromQuery for ListQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let OrgQuery { include_org } = OrgQuery::from_query(fields);
        let PageQuery { limit, cursor } = PageQuery::from_query(fields);
        ListQuery { include_org, all: fields.flag("all"), limit, cursor }
    }
}

impl From<ListQuery> for Listing {
    fn from(query: ListQuery) -> Self {
        let ListQuery { include_org, all, limit, cursor } = query;
        Listing { include_org, all, limit, cursor }
    }
}

/// Whether the list covers the whole organization.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OrgQuery {
    /// List everything of the organization instead of what the caller created; also accepted as `org`.
    #[param(required = false, default = false)]
    pub(crate) include_org: bool,
}

impl FromQuery for OrgQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let (include_org, org) = (fields.flag("include_org"), fields.flag("org"));
        OrgQuery { include_org: include_org || org }
    }
}

/// The parameters of every list that comes in pages.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Maximum number of rows.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
    /// Where the previous page ended.
    pub(crate) cursor: Option<String>,
}

impl FromQuery for PageQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let limit = fields.number("limit", 1..=i64::from(MAX_LIMIT));
        PageQuery { limit: limit.and_then(|limit| u32::try_from(limit).ok()), cursor: fields.text("cursor") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::input::query::parse_query;

    fn refusals(query: &str) -> Vec<(String, String)> {
        let failure = parse_query::<ListQuery>(query).err().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&failure.body("id")).unwrap();
        let errors = body["detail"].as_array().unwrap().iter();
        errors.map(|error| (error["loc"][1].as_str().unwrap().into(), error["type"].as_str().unwrap().into())).collect()
    }

    /// Booleans are accepted in any case.
    #[test]
    fn booleans_are_case_insensitive() {
        for text in ["True", "true", "TRUE", "1", "yes", "On"] {
            assert!(parse_query::<ListQuery>(&format!("include_org={text}")).unwrap().include_org, "{text}");
            assert!(parse_query::<ListQuery>(&format!("org={text}")).unwrap().include_org, "{text}");
        }
        for text in ["False", "false", "0", "no", ""] {
            assert!(!parse_query::<ListQuery>(&format!("include_org={text}")).unwrap().include_org, "{text}");
        }
    }

    /// All errors of a query are reported at once.
    #[test]
    fn query_errors_are_reported_together() {
        let expected = [("include_org", "bool_parsing"), ("limit", "greater_than_equal"), ("all", "bool_parsing")];
        assert_eq!(
            refusals("include_org=perhaps&limit=0&all=2"),
            expected.map(|(name, kind)| (name.into(), kind.into()))
        );
    }

    #[test]
    fn query_numbers_have_limits() {
        let huge = "9".repeat(60);
        let cases =
            [("1.5", "int_parsing"), ("x", "int_parsing"), ("-1", "greater_than_equal"), ("1001", "less_than_equal")];
        let cases = cases.into_iter().chain([(huge.as_str(), "less_than_equal")]);
        for (text, kind) in cases {
            assert_eq!(refusals(&format!("limit={text}")), [("limit".to_owned(), kind.to_owned())], "{text}");
        }
        assert_eq!(parse_query::<ListQuery>("limit=1000&limit=7").unwrap().limit, Some(7), "the last one counts");
    }

    /// A malformed query is read without an error.
    #[test]
    fn malformed_query_is_accepted() {
        for text in ["&&==&", "cursor", "%", "cursor=%ff%00", "cursor=a=b", "limit"] {
            assert!(parse_query::<ListQuery>(text).is_ok(), "{text}");
        }
    }
}
