//! Rules for browsers: which scripts may call a bucket, and what they may see of the responses.

use serde::{Deserialize, Serialize};

/// The most rules of a bucket.
pub const MAX_RULES: usize = 100;

/// The largest sum of all texts of a bucket's rules, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// The most origins, methods and headers in a bucket's rules. Anyone may have them compared, by a preflight.
pub const MAX_TEXTS: usize = 1000;

/// The most headers that a preflight may name. Each is compared with those of the rules.
pub const MAX_ASKED_HEADERS: usize = 100;

/// The methods that a rule may allow.
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// What scripts of some origins may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorsRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The origins of the scripts, each with at most one `*`.
    pub origins: Vec<String>,
    /// The methods of their calls.
    pub methods: Vec<String>,
    /// The headers that they may send, each with at most one `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The headers of the responses that they may read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exposed: Vec<String>,
    /// How long a browser may remember the rule, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<u32>,
}

impl CorsRule {
    /// Returns whether every origin is allowed.
    pub fn allows_every_origin(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    fn allows(&self, origin: &str, method: &str, headers: &[String]) -> bool {
        let allows_header = |header: &String| {
            let header = header.to_ascii_lowercase();
            self.headers.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), &header))
        };
        self.origins.iter().any(|pattern| matches(pattern, origin))
            && self.methods.iter().any(|allowed| allowed == method)
            && headers.iter().all(allows_header)
    }
}

/// Why rules for browsers are not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BadCorsRules {
    #[error("a bucket has 1 to {MAX_RULES} rules, with {MAX_TEXTS} texts and {MAX_BYTES} bytes of text in all")]
    Amount,
    #[error("every rule needs an origin and a method")]
    Empty,
    #[error("the method {0} is not one of GET, PUT, POST, DELETE and HEAD")]
    Method(String),
    #[error("{0} has more than one wildcard")]
    Wildcards(String),
    #[error("{0} is not the name of a header, or has a wildcard where none is allowed")]
    Header(String),
}

/// Checks the rules of a bucket.
pub fn check_rules(rules: &[CorsRule]) -> Result<(), BadCorsRules> {
    let texts = || {
        let lists = rules.iter().flat_map(|rule| [&rule.origins, &rule.methods, &rule.headers, &rule.exposed]);
        lists.flatten().chain(rules.iter().filter_map(|rule| rule.id.as_ref()))
    };
    let is_large = texts().count() > MAX_TEXTS || texts().map(String::len).sum::<usize>() > MAX_BYTES;
    if rules.is_empty() || rules.len() > MAX_RULES || is_large {
        return Err(BadCorsRules::Amount);
    }
    for rule in rules {
        if rule.origins.is_empty() || rule.methods.is_empty() {
            return Err(BadCorsRules::Empty);
        }
        if let Some(method) = rule.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(BadCorsRules::Method(method.clone()));
        }
        let patterns = rule.origins.iter().chain(&rule.headers);
        if let Some(pattern) = patterns.clone().find(|pattern| pattern.matches('*').count() > 1) {
            return Err(BadCorsRules::Wildcards(pattern.clone()));
        }
        let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_name = |text: &str| is_text(text) && !text.contains(['*', ',', ':']);
        let unwritable = patterns.clone().find(|text| !is_text(text) || text.contains(','));
        if let Some(text) = unwritable.or_else(|| rule.exposed.iter().find(|header| !is_name(header))) {
            return Err(BadCorsRules::Header(text.clone()));
        }
    }
    Ok(())
}

/// Returns the first rule that allows a call: its origin, its method and the headers that it sends.
pub fn find_rule<'a>(rules: &'a [CorsRule], origin: &str, method: &str, headers: &[String]) -> Option<&'a CorsRule> {
    rules.iter().find(|rule| rule.allows(origin, method, headers))
}

/// Returns whether a text matches a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CorsRule {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        CorsRule { origins: owned(origins), methods: owned(methods), headers: owned(headers), ..CorsRule::default() }
    }

    #[test]
    fn wildcards_match_once() {
        for (pattern, origin, fits) in [
            ("https://a.org", "https://a.org", true),
            ("https://a.org", "https://a.org.evil", false),
            ("https://*.a.org", "https://b.a.org", true),
            ("https://*.a.org", "https://.a.org", true),
            ("https://*.a.org", "http://b.a.org", false),
            ("start*", "startend", true),
            ("*end", "startend", true),
            ("ab*ba", "aba", false),
            ("*", "null", true),
        ] {
            let rules = [rule(&[pattern], &["GET"], &[])];
            assert_eq!(find_rule(&rules, origin, "GET", &[]).is_some(), fits, "{pattern} {origin}");
        }
    }

    #[test]
    fn first_rule_that_allows_all_is_found() {
        let rules = [rule(&["https://a.org"], &["PUT"], &["x-amz-*", "Content-Type"]), rule(&["*"], &["GET"], &[])];
        let find = |origin, method, headers: &[&str]| {
            let headers: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
            find_rule(&rules, origin, method, &headers).map(|found| found.methods[0].clone())
        };
        assert_eq!(find("https://a.org", "PUT", &["X-Amz-Date", "content-type"]).as_deref(), Some("PUT"));
        assert_eq!(find("https://a.org", "PUT", &["range"]), None);
        assert_eq!(find("https://b.org", "PUT", &[]), None);
        assert_eq!(find("https://b.org", "GET", &[]).as_deref(), Some("GET"));
        assert_eq!(find("https://b.org", "HEAD", &[]), None);
    }

    #[test]
    fn malformed_rules_are_refused() {
        assert_eq!(check_rules(&[rule(&["*"], &["GET", "HEAD"], &["*"])]), Ok(()));
        assert_eq!(check_rules(&[]), Err(BadCorsRules::Amount));
        assert_eq!(check_rules(&vec![rule(&["*"], &["GET"], &[]); 101]), Err(BadCorsRules::Amount));
        assert_eq!(check_rules(&[rule(&[&"a".repeat(MAX_BYTES)], &["GET"], &[])]), Err(BadCorsRules::Amount));
        let repeated = |count| [rule(&["*"], &["GET"], &vec!["a"; count])];
        assert_eq!(check_rules(&repeated(MAX_TEXTS - 2)), Ok(()));
        assert_eq!(check_rules(&repeated(MAX_TEXTS - 1)), Err(BadCorsRules::Amount));
        assert_eq!(check_rules(&[rule(&[], &["GET"], &[])]), Err(BadCorsRules::Empty));
        assert_eq!(check_rules(&[rule(&["*"], &["PATCH"], &[])]), Err(BadCorsRules::Method("PATCH".to_owned())));
        assert_eq!(check_rules(&[rule(&["*a*"], &["GET"], &[])]), Err(BadCorsRules::Wildcards("*a*".to_owned())));
        for text in ["a b", "ä", "", "a\r\nb", "a,b"] {
            assert_eq!(check_rules(&[rule(&[text], &["GET"], &[])]), Err(BadCorsRules::Header(text.to_owned())));
        }
        let exposed = CorsRule { exposed: vec!["x-*".to_owned()], ..rule(&["*"], &["GET"], &[]) };
        assert_eq!(check_rules(&[exposed]), Err(BadCorsRules::Header("x-*".to_owned())));
    }
}
