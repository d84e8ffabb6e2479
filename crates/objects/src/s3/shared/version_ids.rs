//! Version ids as S3 writes them: the version without an id is called "null".

use s3s::{S3Result, s3_error};
use tarn_model::ids::VersionId;
use tarn_model::objects::Object;

use crate::find::VersionSelector;
use crate::put::StoredVersion;

/// Parses the parameter `versionId`.
pub(in crate::s3) fn parse_selector(text: Option<&str>) -> S3Result<VersionSelector> {
    match text {
        None => Ok(VersionSelector::Current),
        Some(text) => Ok(VersionSelector::Version(parse_version_id(text)?)),
    }
}

/// Parses a version id; `None` is "null".
pub(in crate::s3) fn parse_version_id(text: &str) -> S3Result<Option<VersionId>> {
    match text {
        "null" => Ok(None),
        _ => match text.parse() {
            Ok(version) => Ok(Some(version)),
            Err(_) => Err(s3_error!(InvalidArgument, "Invalid version id specified")),
        },
    }
}

/// Formats a version id.
pub(in crate::s3) fn version_text(version: Option<&VersionId>) -> String {
    version.map_or("null", VersionId::as_str).to_owned()
}

/// Returns the version id of an object that was found. "null" is returned only when a version was requested, because a
/// bucket without versioning has no version ids.
pub(in crate::s3) fn found_version(object: &Object, selector: &VersionSelector) -> Option<String> {
    match (&object.version, selector) {
        (None, VersionSelector::Current) => None,
        (version, _) => Some(version_text(version.as_ref())),
    }
}

/// Returns the version id of a stored object; none where the bucket keeps no versions.
pub(in crate::s3) fn stored_version(version: &StoredVersion) -> Option<String> {
    match version {
        StoredVersion::Unversioned => None,
        StoredVersion::Null => Some(version_text(None)),
        StoredVersion::Id(id) => Some(version_text(Some(id))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "null" is the version without an id.
    #[test]
    fn null_is_the_version_without_id() {
        assert_eq!(parse_selector(None).unwrap(), VersionSelector::Current);
        assert_eq!(parse_selector(Some("null")).unwrap(), VersionSelector::Version(None));
        let id: VersionId = format!("{}7k2m9q4x0abc", VersionId::PREFIX).parse().unwrap();
        assert_eq!(parse_selector(Some(id.as_str())).unwrap(), VersionSelector::Version(Some(id.clone())));
        assert_eq!((version_text(Some(&id)).as_str(), version_text(None).as_str()), (id.as_str(), "null"));
        let refused = parse_selector(Some("../etc")).unwrap_err();
        assert_eq!(
            (refused.code().as_str(), refused.status_code().map(|code| code.as_u16())),
            ("InvalidArgument", Some(400))
        );
    }
}
