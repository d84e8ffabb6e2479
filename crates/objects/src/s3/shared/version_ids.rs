//! Ids of versions as S3 writes them: the version that has none is called "null".

use s3s::{S3Result, s3_error};
use tarn_model::ids::VersionId;
use tarn_model::objects::Object;

use crate::find::Which;

/// Which version a call means by `versionId`.
pub(in crate::s3) fn which(text: Option<&str>) -> S3Result<Which> {
    match text {
        None => Ok(Which::Current),
        Some(text) => Ok(Which::Version(parse(text)?)),
    }
}

/// The version that goes by this text; `None` is "null".
pub(in crate::s3) fn parse(text: &str) -> S3Result<Option<VersionId>> {
    match text {
        "null" => Ok(None),
        _ => match text.parse() {
            Ok(version) => Ok(Some(version)),
            Err(_) => Err(s3_error!(InvalidArgument, "Invalid version id specified")),
        },
    }
}

/// The text for a version.
pub(in crate::s3) fn text(version: Option<&VersionId>) -> String {
    version.map_or("null", VersionId::as_str).to_owned()
}

/// The text for an object that was found: "null" only where it was asked for, because a bucket that keeps no versions has
/// none to tell.
pub(in crate::s3) fn of(object: &Object, which: &Which) -> Option<String> {
    match (&object.version, which) {
        (None, Which::Current) => None,
        (version, _) => Some(text(version.as_ref())),
    }
}

/// The text for the version of an answer; where a bucket keeps no versions there is none to tell.
pub(in crate::s3) fn shown(version: Option<&Option<VersionId>>) -> Option<String> {
    version.map(|version| text(version.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_the_version_without_an_id() {
        assert_eq!(which(None).unwrap(), Which::Current);
        assert_eq!(which(Some("null")).unwrap(), Which::Version(None));
        let id: VersionId = format!("{}7k2m9q4x0abc", VersionId::PREFIX).parse().unwrap();
        assert_eq!(which(Some(id.as_str())).unwrap(), Which::Version(Some(id.clone())));
        assert_eq!((text(Some(&id)).as_str(), text(None).as_str()), (id.as_str(), "null"));
        let refused = which(Some("../etc")).unwrap_err();
        assert_eq!(
            (refused.code().as_str(), refused.status_code().map(|code| code.as_u16())),
            ("InvalidArgument", Some(400))
        );
    }
}
