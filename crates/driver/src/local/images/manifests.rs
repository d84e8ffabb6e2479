//! What registries say about images, as far as it matters here: documents of OCI and of Docker, which have the same shape.

use serde::Deserialize;
use tarn_link::Image;

use super::names;
use crate::Error;

/// What is asked for.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// No document is longer: registries themselves take no longer ones.
pub(super) const MAX_DOCUMENT: u64 = 4 << 20;

/// No image has more layers: the kernel and everybody else stop here, too.
pub(super) const MAX_LAYERS: usize = 127;

/// An index or a manifest: which of them shows in what it has.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    schema_version: Option<u32>,
    manifests: Option<Vec<Entry>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// The way to a piece of an image.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
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
    config: Option<Run>,
    rootfs: Layers,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Run {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Layers {
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// A document that says where to go on.
pub(super) enum Found {
    /// To the manifest with this digest, which is for this machine.
    Elsewhere(String),
    /// To the configuration and to the layers, lowest first.
    Here(Descriptor, Vec<Descriptor>),
}

/// Understands an index or a manifest.
pub(super) fn understand(name: &str, text: &[u8]) -> Result<Found, Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("{name} cannot be used: {why}")));
    let Ok(document) = serde_json::from_slice::<Document>(text) else {
        return refuse("its manifest is not understood");
    };
    if document.schema_version != Some(2) {
        return refuse("its manifest has a form that is no longer in use (schema 1); push it anew with a current tool");
    }
    match document {
        Document { manifests: Some(entries), .. } => choose(name, &entries).map(Found::Elsewhere),
        Document { config: Some(config), layers: Some(layers), .. } => {
            if layers.len() > MAX_LAYERS {
                return refuse(&format!("it has {} layers, and at most {MAX_LAYERS} are possible", layers.len()));
            }
            layers.iter().try_for_each(|layer| check_kind(name, layer))?;
            Ok(Found::Here(config, layers))
        }
        _ => refuse("it is not a container image"),
    }
}

/// Understands a configuration: how programs are run, and the digests of the layers without their compression.
pub(super) fn configuration(name: &str, text: &[u8], layers: usize) -> Result<(Image, Vec<String>), Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("{name} cannot be used: {why}")));
    let Ok(found) = serde_json::from_slice::<Configuration>(text) else {
        return refuse("it is not a container image, or its configuration is not understood");
    };
    let platform = &found.platform;
    if platform.os != "linux" || platform.architecture != architecture() {
        return Err(not_for_this_machine(name, &[platform]));
    }
    let digests: Option<Vec<_>> = found.rootfs.diff_ids.iter().map(|id| names::hex(id).map(str::to_owned)).collect();
    let Some(digests) = digests.filter(|digests| digests.len() == layers) else {
        return refuse("its configuration does not fit its layers");
    };
    let run = found.config.unwrap_or_default();
    let pairs = run.env.unwrap_or_default();
    let environment = pairs.iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let image = Image { environment: environment.collect(), user: some(run.user), directory: some(run.working_dir) };
    Ok((image, digests))
}

/// The architecture of this machine in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The manifest for this machine: of several the one that asks least of the processor.
fn choose(name: &str, entries: &[Entry]) -> Result<String, Error> {
    let unknown = Platform::default();
    let platform = |entry: &Entry| entry.platform.clone().unwrap_or_default();
    let fits = |entry: &&Entry| {
        let Platform { architecture: own, os, variant } = platform(entry);
        os == "linux" && own == architecture() && matches!(variant.as_deref(), None | Some("" | "v1" | "v8"))
    };
    if let Some(entry) = entries.iter().filter(fits).min_by_key(|entry| platform(entry).variant) {
        return Ok(entry.digest.clone());
    }
    let platforms: Vec<_> = entries.iter().map(|entry| entry.platform.as_ref().unwrap_or(&unknown)).collect();
    Err(not_for_this_machine(name, &platforms))
}

fn not_for_this_machine(name: &str, platforms: &[&Platform]) -> Error {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).take(20).collect::<String>();
    let mut there: Vec<String> = platforms
        .iter()
        // What accompanies images in an index says that it is for an unknown machine.
        .filter(|platform| !platform.os.is_empty() && platform.os != "unknown")
        .map(|platform| format!("{}/{}", plain(&platform.os), plain(&platform.architecture)))
        .take(10)
        .collect();
    there.dedup();
    let there = if there.is_empty() { "none that is named".to_owned() } else { there.join(", ") };
    Error::Permanent(format!("{name} is not for this machine, which is linux/{}: there is {there}", architecture()))
}

fn check_kind(name: &str, layer: &Descriptor) -> Result<(), Error> {
    let kind = layer.media_type.as_str();
    let why = if kind.contains("foreign") || kind.contains("nondistributable") {
        "one of its layers must not be passed on and is not in the registry"
    } else if kind.contains("encrypted") {
        "one of its layers is encrypted"
    } else if !(kind.contains("tar") || kind.is_empty()) {
        "one of its layers is of a kind that is not understood"
    } else if names::hex(&layer.digest).is_none() {
        "the digest of one of its layers is not a SHA-256"
    } else {
        return Ok(());
    };
    Err(Error::Permanent(format!("{name} cannot be used: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(result: Result<Found, Error>) -> String {
        result.err().unwrap().to_string()
    }

    #[test]
    fn an_index_leads_to_the_manifest_for_this_machine() {
        let entry = |os: &str, own: &str, digest: &str| {
            format!(r#"{{"digest":"{digest}","platform":{{"os":"{os}","architecture":"{own}"}}}}"#)
        };
        let index = |entries: &[String]| format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
        let all = index(&[entry("linux", "s390x", "a"), entry("linux", architecture(), "b")]);
        let Ok(Found::Elsewhere(digest)) = understand("x", all.as_bytes()) else { panic!("nothing was found") };
        assert_eq!(digest, "b");
        let other =
            index(&[entry("linux", "s390x", "a"), entry("windows", "amd64", "c"), entry("unknown", "unknown", "d")]);
        let why = words(understand("x", other.as_bytes()));
        assert!(why.contains("there is linux/s390x, windows/amd64") && !why.contains("unknown"), "{why}");
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_words() {
        let layer = |kind: &str| {
            let digest = format!("sha256:{}", "0".repeat(64));
            format!(
                r#"{{"schemaVersion":2,"config":{{"digest":"a","size":1}},"layers":[{{"mediaType":"{kind}","digest":"{digest}","size":1}}]}}"#
            )
        };
        for (text, why) in [
            (r#"{"schemaVersion":1}"#.to_owned(), "schema 1"),
            ("[".to_owned(), "not understood"),
            (r#"{"schemaVersion":2}"#.to_owned(), "not a container image"),
            (layer("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "must not be passed on"),
            (layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), "encrypted"),
            (layer("application/wasm"), "of a kind that is not understood"),
        ] {
            let said = words(understand("x", text.as_bytes()));
            assert!(said.contains(why), "{said}");
        }
        assert!(understand("x", layer("application/vnd.oci.image.layer.v1.tar+zstd").as_bytes()).is_ok());
    }

    #[test]
    fn a_configuration_says_how_programs_are_run() {
        let id = format!("sha256:{}", "1".repeat(64));
        let text = format!(
            r#"{{"os":"linux","architecture":"{}","config":{{"Env":["A=b=c","odd"],"User":"","WorkingDir":"/w","Cmd":null}},"rootfs":{{"diff_ids":["{id}"]}}}}"#,
            architecture()
        );
        let (image, digests) = configuration("x", text.as_bytes(), 1).unwrap();
        assert_eq!(image.environment, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!((image.user, image.directory.as_deref(), digests[0].len()), (None, Some("/w"), 64));
        assert!(configuration("x", text.as_bytes(), 2).is_err());
        let other = text.replace(architecture(), "riscv64");
        assert!(configuration("x", other.as_bytes(), 1).unwrap_err().to_string().contains("linux/riscv64"));
    }
}
