//! What a registry says when it wants to know who asks.

/// How a registry wants to be told who asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// By name and password with every call.
    Basic,
    /// By a token, which somebody else gives out.
    Bearer {
        /// Where tokens are given out.
        realm: String,
        /// For whom.
        service: Option<String>,
    },
}

/// Understands the header `WWW-Authenticate`.
pub(in crate::local::images) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let value = |wanted: &str| pairs(rest).find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    Some(Challenge::Bearer { realm: value("realm")?, service: value("service") })
}

/// The pairs `name="value"` of a challenge, between commas; a comma in quotes is none.
fn pairs(text: &str) -> impl Iterator<Item = (&str, String)> {
    let mut quoted = false;
    let parts = text.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    parts
        .filter_map(|part| part.trim().split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().replace('"', "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_understood() {
        assert_eq!(parse("Basic realm=\"x\""), Some(Challenge::Basic));
        let bearer = "Bearer realm=\"https://auth.example/token\",service=\"a,b\",scope=\"repository:x:pull,push\"";
        let (realm, service) = ("https://auth.example/token".to_owned(), Some("a,b".to_owned()));
        assert_eq!(parse(bearer), Some(Challenge::Bearer { realm, service }));
        assert_eq!(parse("Bearer service=x"), None);
        assert_eq!(parse("Negotiate"), None);
    }
}
