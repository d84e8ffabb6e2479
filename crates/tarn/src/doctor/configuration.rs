//! The configuration as it is in effect, with every secret hidden.

use serde_json::Value;
use tarn_driver::findings::Finding;

use super::patient::Patient;
use crate::config::Config;

/// What stands in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// What the names of secrets contain. The names of files that hold secrets are none.
const SECRETS: [&str; 4] = ["password", "secret", "token", "credential"];

/// It was read, or nothing would be asked here; what is odd in it is told.
pub(super) fn readable(patient: &Patient) -> Finding {
    const CHECK: &str = "configuration.readable";
    let config = &patient.config;
    let todo = "serve HTTPS with --tls-cert and --tls-key, or put something before it that does, and give --public-url";
    let public = config.public_url.as_deref().unwrap_or_default();
    match config.listen.ip().is_loopback() || config.tls_cert.is_some() || public.starts_with("https:") {
        true => Finding::ok(CHECK, format!("data in {}", patient.data.display())),
        false => Finding::warning(
            CHECK,
            format!("API keys travel over the network in clear: {} speaks plain HTTP", config.listen),
            todo,
        ),
    }
}

/// The configuration as a tree, without secrets.
pub(super) fn shown(config: &Config) -> Value {
    let mut tree = serde_json::to_value(config).unwrap_or_default();
    hide("", &mut tree);
    tree
}

/// Hides what is secret by its name, and the passwords in addresses. What is not set is left out.
fn hide(name: &str, value: &mut Value) {
    let is_secret = SECRETS.iter().any(|word| name.contains(word)) && !name.ends_with("_file");
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.iter_mut().for_each(|(name, member)| hide(name, member));
        }
        Value::Array(members) => members.iter_mut().for_each(|member| hide(name, member)),
        Value::String(text) if is_secret => HIDDEN.clone_into(text),
        Value::String(text) => *text = without_password(text),
        _ => {}
    }
}

/// An address without the password in it. One may also stand among its options.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, options) = rest.split_once('?').map_or((rest, None), |(rest, options)| (rest, Some(options)));
    let end = rest.find('/').unwrap_or(rest.len());
    let rest = match rest[..end].rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{user}:{HIDDEN}@{host}{}", &rest[end..])
        }
        _ => rest.to_owned(),
    };
    let options =
        options.map(|options| if options.contains("password") { format!("?{HIDDEN}") } else { format!("?{options}") });
    format!("{scheme}://{rest}{}", options.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        for (text, expected) in [
            ("postgres://tarn:s3cret@db/tarn", "postgres://tarn:(hidden)@db/tarn"),
            ("postgres://tarn:a:b@c@db:5432/tarn?x=1", "postgres://tarn:(hidden)@db:5432/tarn?x=1"),
            ("postgres://db/tarn?user=a&password=b", "postgres://db/tarn?(hidden)"),
            ("postgres://tarn@db/tarn", "postgres://tarn@db/tarn"),
            ("/srv/a:b@c", "/srv/a:b@c"),
        ] {
            assert_eq!(without_password(text), expected);
        }
        let mut tree = serde_json::json!({
            "registries": [{ "host": "a", "password": "x", "token": "y" }],
            "secret_key_file": "/etc/key", "public_url": null,
        });
        hide("", &mut tree);
        let hidden = serde_json::json!({
            "registries": [{ "host": "a", "password": HIDDEN, "token": HIDDEN }], "secret_key_file": "/etc/key",
        });
        assert_eq!(tree, hidden);
    }

    #[test]
    fn the_whole_configuration_is_shown() {
        let config: Config =
            toml::from_str("database = 'postgres://a:b@c/d'\npublic_ssh = 'x:22'\ns3_listen = 'none'").unwrap();
        let shown = shown(&config);
        assert_eq!(shown["database"], "postgres://a:(hidden)@c/d");
        assert_eq!((&shown["public_ssh"], &shown["s3_listen"]), (&"x:22".into(), &"none".into()));
        assert_eq!(shown["requests"]["parallel"], 32);
        let again: Config = serde_json::from_value(shown).unwrap();
        assert_eq!(again.listen, config.listen);
    }
}
