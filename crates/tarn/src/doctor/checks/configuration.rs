//! The configuration in effect, with every secret hidden.

use serde_json::Value;
use tarn_driver::findings::Finding;

use crate::config::Config;
use crate::doctor::target::Target;

/// The replacement of a secret.
const HIDDEN: &str = "(hidden)";

/// Parts of the names of secrets. Names of files that hold secrets are not secret.
const SECRETS: [&str; 4] = ["password", "secret", "token", "credential"];

/// Warns about HTTP without encryption. The configuration itself was read before.
pub(in crate::doctor) fn check_configuration(target: &Target) -> Finding {
    const CHECK: &str = "configuration.readable";
    let config = &target.config;
    let todo = "serve HTTPS with --tls-cert and --tls-key, or put an HTTPS proxy in front and set --public-url";
    let public = config.public_url.as_deref().unwrap_or_default();
    if config.listen.ip().is_loopback() || config.tls_cert.is_some() || public.starts_with("https:") {
        Finding::ok(CHECK, format!("the data directory is {}", target.data.display()))
    } else {
        Finding::warning(
            CHECK,
            format!("API keys are sent unencrypted over the network: {} uses HTTP", config.listen),
            todo,
        )
    }
}

/// The configuration as JSON, without secrets.
pub(in crate::doctor) fn without_secrets(config: &Config) -> Value {
    let mut tree = serde_json::to_value(config).unwrap_or_default();
    hide_secrets("", &mut tree);
    tree
}

/// Hides values whose name says that they are secret, and passwords in URLs. Unset values are left out.
fn hide_secrets(name: &str, value: &mut Value) {
    let is_secret = SECRETS.iter().any(|word| name.contains(word)) && !name.ends_with("_file");
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.iter_mut().for_each(|(name, member)| hide_secrets(name, member));
        }
        Value::Array(members) => members.iter_mut().for_each(|member| hide_secrets(name, member)),
        Value::String(text) if is_secret => HIDDEN.clone_into(text),
        Value::String(text) => *text = hide_password(text),
        _ => {}
    }
}

/// Hides the password in a URL, also in its query.
fn hide_password(text: &str) -> String {
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
    fn secrets_are_hidden() {
        for (text, expected) in [
            ("postgres://tarn:s3cret@db/tarn", "postgres://tarn:(hidden)@db/tarn"),
            ("postgres://tarn:a:b@c@db:5432/tarn?x=1", "postgres://tarn:(hidden)@db:5432/tarn?x=1"),
            ("postgres://db/tarn?user=a&password=b", "postgres://db/tarn?(hidden)"),
            ("postgres://tarn@db/tarn", "postgres://tarn@db/tarn"),
            ("/srv/a:b@c", "/srv/a:b@c"),
        ] {
            assert_eq!(hide_password(text), expected);
        }
        let mut tree = serde_json::json!({
            "registries": [{ "host": "a", "password": "x", "token": "y" }],
            "secret_key_file": "/etc/key", "public_url": null,
        });
        hide_secrets("", &mut tree);
        let hidden = serde_json::json!({
            "registries": [{ "host": "a", "password": HIDDEN, "token": HIDDEN }], "secret_key_file": "/etc/key",
        });
        assert_eq!(tree, hidden);
    }

    #[test]
    fn whole_configuration_is_shown() {
        let config: Config =
            toml::from_str("database = 'postgres://a:b@c/d'\npublic_ssh = 'x:22'\ns3_listen = 'none'").unwrap();
        let shown = without_secrets(&config);
        assert_eq!(shown["database"], "postgres://a:(hidden)@c/d");
        assert_eq!((&shown["public_ssh"], &shown["s3_listen"]), (&"x:22".into(), &"none".into()));
        assert_eq!(shown["requests"]["parallel"], 32);
        let again: Config = serde_json::from_value(shown).unwrap();
        assert_eq!(again.listen, config.listen);
    }
}
