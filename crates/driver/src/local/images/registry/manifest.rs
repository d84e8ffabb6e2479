//! The documents of registries about images: manifests, indexes and configurations of OCI and of Docker, which have the
//! same form.

use serde::Deserialize;
use tarn_link::Image;

use crate::Error;
use crate::local::images;

/// The accepted media types.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// The maximum size of a document; registries have the same limit.
pub(super) const MAX_DOCUMENT: u64 = 4 << 20;

/// The maximum number of layers of an image; the kernel has the same limit.
pub(super) const MAX_LAYERS: usize = 127;

/// The run configuration of an image is passed to the guest in one environment variable, which the kernel limits to 128
/// KiB.
const MAX_RUN_CONFIGURATION: usize = 100 << 10;

/// The maximum number of environment variables of an image, and the maximum length of its user and directory names.
const MAX_VARIABLES: usize = 4096;
const MAX_USER: usize = 256;
const MAX_DIRECTORY: usize = 4096;

/// The maximum size of a layer. No image cache is larger, and sums of such sizes do not overflow.
const MAX_LAYER: u64 = 1_000_000_000_000_000;

/// How many platforms of an image an error message lists.
const MAX_PLATFORMS_SHOWN: usize = 10;

/// An index or a manifest, depending on its fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    schema_version: Option<u32>,
    manifests: Option<Vec<Entry>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::local::images) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(in crate::local::images) digest: String,
    pub(in crate::local::images) size: u64,
}

#[derive(Debug, Deserialize)]
struct Entry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
    variant: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    #[serde(flatten)]
    platform: Platform,
    #[serde(default)]
    config: Option<RunConfiguration>,
    rootfs: Layers,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RunConfiguration {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Layers {
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// What a document refers to.
pub(in crate::local::images) enum ManifestContent {
    /// The digest of the manifest for this platform.
    Index(String),
    /// The configuration and the layers, lowest first.
    Image(Descriptor, Vec<Descriptor>),
}

/// Returns whether this is an index or a manifest, and not, for example, an HTML page.
pub(super) fn is_manifest(text: &[u8]) -> bool {
    serde_json::from_slice::<Document>(text).is_ok_and(|document| document.schema_version.is_some())
}

/// Parses an index or a manifest.
pub(in crate::local::images) fn parse_manifest(name: &str, text: &[u8]) -> Result<ManifestContent, Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("{name} cannot be used: {why}")));
    let Ok(document) = serde_json::from_slice::<Document>(text) else {
        return refuse("its manifest is invalid");
    };
    if document.schema_version != Some(2) {
        return refuse("its manifest has an obsolete form (schema 1); push it again with a current tool");
    }
    match document {
        Document { manifests: Some(_), layers: Some(_), .. } => {
            refuse("its manifest has both layers and other manifests")
        }
        Document { manifests: Some(entries), .. } => {
            choose_platform_manifest(name, &entries).map(ManifestContent::Index)
        }
        Document { config: Some(config), layers: Some(layers), .. } => {
            if layers.len() > MAX_LAYERS {
                return refuse(&format!("it has {} layers, and at most {MAX_LAYERS} are possible", layers.len()));
            }
            layers.iter().try_for_each(|layer| check_layer_type(name, layer))?;
            Ok(ManifestContent::Image(config, layers))
        }
        _ => refuse("it is not a container image"),
    }
}

/// Parses a configuration: how programs are run, and the digests of the uncompressed layers.
pub(in crate::local::images) fn parse_configuration(
    name: &str,
    text: &[u8],
    layers: usize,
) -> Result<(Image, Vec<String>), Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("{name} cannot be used: {why}")));
    let Ok(found) = serde_json::from_slice::<Configuration>(text) else {
        return refuse("it is not a container image, or its configuration is invalid");
    };
    let platform = &found.platform;
    if platform.os != "linux" || platform.architecture != oci_architecture() {
        return Err(wrong_platform(name, &[platform]));
    }
    let digests: Option<Vec<_>> =
        found.rootfs.diff_ids.iter().map(|id| images::digest_hex(id).map(str::to_owned)).collect();
    let Some(digests) = digests.filter(|digests| digests.len() == layers) else {
        return refuse("its configuration does not match its layers");
    };
    let run = found.config.unwrap_or_default();
    let pairs = run.env.unwrap_or_default();
    let environment = pairs.iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let image = Image { environment: environment.collect(), user: some(run.user), directory: some(run.working_dir) };
    match find_excess(&image) {
        Some(why) => refuse(&format!("its run configuration is too large: {why}")),
        None => Ok((image, digests)),
    }
}

/// Returns which limit of the run configuration an image exceeds.
fn find_excess(image: &Image) -> Option<String> {
    let variables = image.environment.len();
    if variables > MAX_VARIABLES {
        return Some(format!("it has {variables} variables, and at most {MAX_VARIABLES} are possible"));
    }
    for (what, word, most) in [("user", &image.user, MAX_USER), ("directory", &image.directory, MAX_DIRECTORY)] {
        if word.as_ref().is_some_and(|word| word.len() > most) {
            return Some(format!("the name of its {what} is longer than {most} bytes"));
        }
    }
    let length = serde_json::to_vec(image).map_or(usize::MAX, |text| text.len());
    (length > MAX_RUN_CONFIGURATION)
        .then(|| format!("its variables take {length} bytes, and at most {MAX_RUN_CONFIGURATION} are possible"))
}

/// Returns the architecture of this host in OCI terms.
fn oci_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Chooses the manifest for this host: the variant with the lowest requirements. A manifest without a platform is the
/// last resort; its configuration has the platform.
fn choose_platform_manifest(name: &str, entries: &[Entry]) -> Result<String, Error> {
    let platform = |entry: &Entry| entry.platform.clone().unwrap_or_default();
    let fits = |entry: &&Entry| {
        let Platform { architecture: own, os, variant } = platform(entry);
        os == "linux" && own == oci_architecture() && matches!(variant.as_deref(), None | Some("" | "v1" | "v8"))
    };
    let best = entries.iter().filter(fits).min_by_key(|entry| platform(entry).variant);
    if let Some(entry) = best.or_else(|| entries.iter().find(|entry| entry.platform.is_none())) {
        return Ok(entry.digest.clone());
    }
    let platforms: Vec<_> = entries.iter().filter_map(|entry| entry.platform.as_ref()).collect();
    Err(wrong_platform(name, &platforms))
}

fn wrong_platform(name: &str, platforms: &[&Platform]) -> Error {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).take(20).collect::<String>();
    let mut platform_names: Vec<String> = Vec::new();
    // Attestations in an index have the platform `unknown`.
    for platform in platforms.iter().filter(|platform| !platform.os.is_empty() && platform.os != "unknown") {
        let parts = [Some(&platform.os), Some(&platform.architecture), platform.variant.as_ref()];
        let parts: Vec<_> =
            parts.into_iter().flatten().map(|part| plain(part)).filter(|part| !part.is_empty()).collect();
        let platform_name = parts.join("/");
        if platform_names.len() < MAX_PLATFORMS_SHOWN && !platform_names.contains(&platform_name) {
            platform_names.push(platform_name);
        }
    }
    let platform_names = if platform_names.is_empty() { "none named".to_owned() } else { platform_names.join(", ") };
    Error::Permanent(format!(
        "{name} is not for this host, which is linux/{}; available: {platform_names}",
        oci_architecture()
    ))
}

fn check_layer_type(name: &str, layer: &Descriptor) -> Result<(), Error> {
    let kind = layer.media_type.as_str();
    let why = if kind.contains("foreign") || kind.contains("nondistributable") {
        "one of its layers is not distributable and not in the registry"
    } else if kind.contains("encrypted") {
        "one of its layers is encrypted"
    } else if !(kind.contains("tar") || kind.is_empty()) {
        "one of its layers is of an unsupported kind"
    } else if images::digest_hex(&layer.digest).is_none() {
        "the digest of one of its layers is not a SHA-256"
    } else if layer.size > MAX_LAYER {
        "one of its layers is larger than any image cache"
    } else {
        return Ok(());
    };
    Err(Error::Permanent(format!("{name} cannot be used: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(result: Result<ManifestContent, Error>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn index_leads_to_the_manifest_for_this_host() {
        let entry = |os: &str, own: &str, digest: &str| {
            format!(r#"{{"digest":"{digest}","platform":{{"os":"{os}","architecture":"{own}"}}}}"#)
        };
        let index = |entries: &[String]| format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
        let all = index(&[entry("linux", "s390x", "a"), entry("linux", oci_architecture(), "b")]);
        let Ok(ManifestContent::Index(digest)) = parse_manifest("x", all.as_bytes()) else {
            panic!("nothing was found")
        };
        assert_eq!(digest, "b");
        let other =
            index(&[entry("linux", "s390x", "a"), entry("windows", "amd64", "c"), entry("unknown", "unknown", "d")]);
        let why = error_text(parse_manifest("x", other.as_bytes()));
        assert!(why.contains("available: linux/s390x, windows/amd64") && !why.contains("unknown"), "{why}");
        let variant = entry("linux", oci_architecture(), "e").replace("\"}}", "\",\"variant\":\"v3\"}}");
        let why = error_text(parse_manifest("x", index(&[variant.clone(), variant.clone()]).as_bytes()));
        assert!(why.ends_with(&format!("available: linux/{}/v3", oci_architecture())), "{why}");
        let bare = r#"{"digest":"f"}"#.to_owned();
        for (entries, chosen) in
            [(vec![variant, bare.clone()], "f"), (vec![bare, entry("linux", oci_architecture(), "g")], "g")]
        {
            let Ok(ManifestContent::Index(digest)) = parse_manifest("x", index(&entries).as_bytes()) else {
                panic!("none")
            };
            assert_eq!(digest, chosen);
        }
    }

    #[test]
    fn unusable_manifests_are_refused() {
        let layer = |kind: &str| {
            let digest = format!("sha256:{}", "0".repeat(64));
            format!(
                r#"{{"schemaVersion":2,"config":{{"digest":"a","size":1}},"layers":[{{"mediaType":"{kind}","digest":"{digest}","size":1}}]}}"#
            )
        };
        for (text, why) in [
            (r#"{"schemaVersion":1}"#.to_owned(), "schema 1"),
            ("[".to_owned(), "is invalid"),
            (r#"{"schemaVersion":2}"#.to_owned(), "not a container image"),
            (layer("tar").replace("{\"schema", "{\"manifests\":[],\"schema"), "both layers and other manifests"),
            (layer("tar").replace("\"size\":1}]", "\"size\":18446744073709551615}]"), "larger than any image cache"),
            (layer("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "not distributable"),
            (layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), "encrypted"),
            (layer("application/wasm"), "of an unsupported kind"),
        ] {
            let message = error_text(parse_manifest("x", text.as_bytes()));
            assert!(message.contains(why), "{message}");
        }
        assert!(parse_manifest("x", layer("application/vnd.oci.image.layer.v1.tar+zstd").as_bytes()).is_ok());
    }

    #[test]
    fn configuration_is_parsed_and_limited() {
        let id = format!("sha256:{}", "1".repeat(64));
        let text = format!(
            r#"{{"os":"linux","architecture":"{}","config":{{"Env":["A=b=c","odd"],"User":"","WorkingDir":"/w","Cmd":null}},"rootfs":{{"diff_ids":["{id}"]}}}}"#,
            oci_architecture()
        );
        let (image, digests) = parse_configuration("x", text.as_bytes(), 1).unwrap();
        assert_eq!(image.environment, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!((image.user, image.directory.as_deref(), digests[0].len()), (None, Some("/w"), 64));
        assert!(parse_configuration("x", text.as_bytes(), 2).is_err());
        let other = text.replace(oci_architecture(), "riscv64");
        assert!(parse_configuration("x", other.as_bytes(), 1).unwrap_err().to_string().contains("linux/riscv64"));
        let many = format!("[{}]", vec!["\"A=b\""; MAX_VARIABLES + 1].join(","));
        for (one, other, why) in [
            (r#""User":"""#, format!(r#""User":"{}""#, "u".repeat(MAX_USER + 1)), "user is longer than 256"),
            (r#""/w""#, format!(r#""/{}""#, "w".repeat(MAX_DIRECTORY)), "directory is longer than 4096"),
            (r#"["A=b=c","odd"]"#, many, "4097 variables"),
            ("A=b=c", format!("A={}", "\\u0001".repeat(MAX_RUN_CONFIGURATION / 6)), "at most 102400 are possible"),
        ] {
            let message = parse_configuration("x", text.replace(one, &other).as_bytes(), 1).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
