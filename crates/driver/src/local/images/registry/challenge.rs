//! The authentication challenge of a registry.

/// How a registry wants to be authenticated to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User name and password with every call.
    Basic,
    /// A token from a token service.
    Bearer {
        /// The URL of the token service.
        realm: String,
        service: Option<String>,
    },
}

/// Parses the header `WWW-Authenticate`.
pub(super) fn parse_challenge(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let value = |wanted: &str| {
        challenge_parameters(rest).find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    Some(Challenge::Bearer { realm: value("realm")?, service: value("service") })
}

/// Returns the pairs `name="value"` of a challenge. A comma in quotes does not separate.
fn challenge_parameters(text: &str) -> impl Iterator<Item = (&str, String)> {
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
    fn both_schemes_are_parsed() {
        assert_eq!(parse_challenge("Basic realm=\"x\""), Some(Challenge::Basic));
        let bearer = "Bearer realm=\"https://auth.example/token\",service=\"a,b\",scope=\"repository:x:pull,push\"";
        let (realm, service) = ("https://auth.example/token".to_owned(), Some("a,b".to_owned()));
        assert_eq!(parse_challenge(bearer), Some(Challenge::Bearer { realm, service }));
        assert_eq!(parse_challenge("Bearer service=x"), None);
        assert_eq!(parse_challenge("Negotiate"), None);
    }
}
