//! The host of a request: `bucket.domain` names a bucket; for other hosts the path names it.

use std::sync::Arc;

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The domains below which buckets have their own host names.
pub(in crate::s3) struct Domains(Vec<String>);

impl Domains {
    /// Uses these domains without their ports, and `localhost`.
    pub(in crate::s3) fn new(domains: Vec<String>) -> Self {
        let mut all: Vec<String> = domains.iter().map(|domain| without_port(domain).to_ascii_lowercase()).collect();
        all.push("localhost".to_owned());
        all.retain(|domain| !domain.is_empty() && domain.parse::<std::net::IpAddr>().is_err());
        // The longest domain comes first: it leaves the shorter bucket name.
        all.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        all.dedup();
        Domains(all)
    }

    /// Returns the bucket that a host names.
    pub(in crate::s3) fn bucket_of_host(&self, host: &str) -> Option<String> {
        let host = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        for domain in &self.0 {
            if let Some(rest) = host.strip_suffix(domain.as_str()) {
                match rest.strip_suffix('.') {
                    Some(bucket) if !bucket.is_empty() => return Some(bucket.to_owned()),
                    _ if rest.is_empty() => return None,
                    _ => {}
                }
            }
        }
        None
    }
}

/// The domains of a service, shared by s3s and the front.
pub(in crate::s3) struct SharedDomains(pub(in crate::s3) Arc<Domains>);

impl S3Host for SharedDomains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        Ok(match self.0.bucket_of_host(host) {
            Some(bucket) => VirtualHost::new(host).with_bucket(bucket),
            None => VirtualHost::new(host),
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only hosts below a domain name buckets.
    #[test]
    fn only_hosts_below_domains_are_buckets() {
        let domains =
            Domains::new(vec!["s3.example.org:7071".to_owned(), "example.org".to_owned(), "10.0.0.1".to_owned()]);
        for (host, bucket) in [
            ("s3.example.org", None),
            ("s3.example.org:443", None),
            ("photos.s3.example.org", Some("photos")),
            ("Photos.S3.example.org:7071", Some("photos")),
            ("a.b.s3.example.org", Some("a.b")),
            ("photos.example.org", Some("photos")),
            ("photos.localhost:7071", Some("photos")),
            ("localhost", None),
            ("notexample.org", None),
            ("elsewhere.net", None),
            ("10.0.0.1:7071", None),
            ("bucket.10.0.0.1", None),
            ("[::1]:7071", None),
            (".localhost", None),
            ("", None),
        ] {
            assert_eq!(domains.bucket_of_host(host).as_deref(), bucket, "{host}");
        }
    }
}
