//! What names a place of backups: a directory, or `s3://BUCKET/PREFIX` with a server and an access key.

use std::path::{Path, PathBuf};

use crate::backup::options::S3Options;
use crate::failure::{Failure, Result};
use crate::process_environment::variable;

/// What the address of a bucket begins with.
const S3: &str = "s3://";

/// A place of backups.
pub(in crate::backup) enum Location {
    Directory(PathBuf),
    Bucket(BucketAddress),
}

/// A bucket, the part of it that has the backups, and how it is reached. It has a secret, and so no `Debug`.
pub(in crate::backup) struct BucketAddress {
    pub(super) bucket: String,
    pub(super) prefix: String,
    /// The URL of the server; `None` is AWS.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    pub(super) access_key: String,
    pub(super) secret: String,
    pub(super) session_token: Option<String>,
}

impl Location {
    /// Understands what a person wrote. The access key is read from the environment only: arguments are visible to
    /// other users of the host.
    pub(in crate::backup) fn parse(text: &Path, options: &S3Options) -> Result<Location> {
        let Some(text) = text.to_str() else { return Ok(Location::Directory(text.to_owned())) };
        let Some(address) = text.strip_prefix(S3) else {
            if text.contains("://") {
                return Err(Failure(format!("{text} is no place of backups: give a directory, or s3://BUCKET/PREFIX")));
            }
            return Ok(Location::Directory(PathBuf::from(text)));
        };
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_bucket = !bucket.is_empty()
            && bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        let is_prefix = prefix.is_empty()
            || prefix.split('/').all(|name| {
                !matches!(name, "" | "." | "..")
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'='))
            });
        if !is_bucket || !is_prefix {
            return Err(Failure(format!(
                "{text} is no place of backups: give s3://BUCKET/PREFIX, with letters, digits, and - . _ = in the names"
            )));
        }
        let (access_key, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        let (Some(access_key), Some(secret)) = (access_key, secret) else {
            return Err(Failure(format!(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment to an access key for {text}"
            )));
        };
        Ok(Location::Bucket(BucketAddress {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: endpoint(options)?,
            region: region(options),
            access_key,
            secret,
            session_token: variable("AWS_SESSION_TOKEN"),
        }))
    }

    /// The location as a person would write it, from any directory.
    pub(in crate::backup) fn absolute(&self) -> PathBuf {
        match self {
            Location::Directory(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            Location::Bucket(address) => PathBuf::from(address.shown()),
        }
    }
}

impl BucketAddress {
    /// The address without how it is reached.
    pub(super) fn shown(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("{S3}{}{slash}{}", self.bucket, self.prefix)
    }

    /// What messages call the server.
    pub(super) fn server(&self) -> String {
        self.endpoint.clone().unwrap_or_else(|| format!("AWS in {}", self.region))
    }
}

fn endpoint(options: &S3Options) -> Result<Option<String>> {
    let Some(url) = options.s3_endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL_S3")) else { return Ok(None) };
    let parsed = reqwest::Url::parse(&url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none()
    });
    let Some(parsed) = parsed else {
        return Err(Failure("the S3 endpoint is no URL such as https://s3.example.org".to_owned()));
    };
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Failure(
            "the S3 endpoint has a user or a password in it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
                .to_owned(),
        ));
    }
    Ok(Some(url.trim_end_matches('/').to_owned()))
}

fn region(options: &S3Options) -> String {
    let region = options.s3_region.clone().or_else(|| variable("AWS_DEFAULT_REGION"));
    region.unwrap_or_else(|| "us-east-1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, endpoint: Option<&str>) -> String {
        let options = S3Options { s3_endpoint: endpoint.map(str::to_owned), ..S3Options::default() };
        Location::parse(Path::new(text), &options).err().map(|failure| failure.0).unwrap_or_default()
    }

    /// Addresses that cannot be meant are refused, and a secret does not belong into one.
    #[test]
    fn addresses_are_checked() {
        for directory in ["backups", "/srv/backups", "s3:", "./s3:/x"] {
            assert_eq!(refusal(directory, None), "", "{directory}");
        }
        for wrong in
            ["s3://", "s3:///x", "s3://key:secret@bucket/x", "s3://b/../x", "s3://b//x", "s3://b/%2e", "gs://b"]
        {
            assert!(refusal(wrong, None).contains("no place of backups"), "{wrong}");
        }
        let endpoint = |url: &str| {
            let options = S3Options { s3_endpoint: Some(url.to_owned()), ..S3Options::default() };
            endpoint(&options).map_err(|failure| failure.0)
        };
        assert_eq!(endpoint("http://127.0.0.1:7071/"), Ok(Some("http://127.0.0.1:7071".to_owned())));
        for wrong in ["s3.example.org", "ftp://s3.example.org", "https://"] {
            assert!(endpoint(wrong).is_err_and(|said| said.contains("no URL")), "{wrong}");
        }
        assert!(endpoint("https://key:secret@s3.example.org").is_err_and(|said| !said.contains("secret@")));
    }
}
