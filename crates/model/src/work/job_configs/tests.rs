//! Which job files are valid, and the messages for those that are not.

use super::*;

fn parse_valid(text: &str) -> Config {
    parse(text).unwrap_or_else(|wrong| panic!("{wrong} in {text}"))
}

#[test]
fn every_key_is_parsed() {
    let config = parse_valid(
        r#"
        name = "my-job"
        commands = ["a", '''b
        c''']
        outputs = ["./results/", "**/*.pt"]
        ignore = ["*.pyc", "!keep.pyc"]
        nodes = "all"
        timeout = "1h30m"
        retries = { count = 2, exit_codes = [75, 3, 75] }
        venv = false
        [env]
        TEXT = "a b"
        NUMBER = 0x10
        FLOAT = 0.5
        YES = true
        "#,
    );
    assert_eq!(config.name.as_deref(), Some("my-job"));
    assert_eq!(config.commands, ["a", "b\n        c"]);
    assert_eq!(config.outputs, ["results/", "**/*.pt"]);
    assert_eq!(config.ignore, ["*.pyc", "!keep.pyc"]);
    assert_eq!((config.nodes, config.timeout_seconds, config.venv), (Nodes::All, Some(5400), false));
    assert_eq!(config.retries, Retries { count: 2, exit_codes: vec![3, 75] });
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [text("FLOAT", "0.5"), text("NUMBER", "16"), text("TEXT", "a b"), text("YES", "true")];
    assert_eq!(config.env, expected);
}

#[test]
fn absent_keys_have_defaults() {
    let config = parse_valid("commands = ['true']");
    let expected = Config { commands: vec!["true".into()], venv: true, ..Config::default() };
    assert_eq!(config, expected);
    assert_eq!(parse_valid("commands = ['a']\nretries = 3").retries, Retries { count: 3, exit_codes: Vec::new() });
    assert_eq!(parse_valid("commands = ['a']\ntimeout = 60").timeout_seconds, Some(60));
}

#[test]
fn template_is_valid() {
    let config = parse_valid(template());
    assert_eq!(config.commands.len(), 1);
    assert!(config.ignore.contains(&".git/".to_owned()));
    // Its commented examples are valid too.
    for line in template().lines().filter_map(|line| line.strip_prefix("# ")) {
        if line.contains(" = ") && !line.starts_with("WANDB") {
            parse_valid(&format!("commands = ['a']\n{line}"));
        }
    }
}

/// Patterns as people write them are far from the limits.
#[test]
fn usual_patterns_are_accepted() {
    let uuid = "?".repeat(8) + "-????-????-????-" + &"?".repeat(12);
    let escaped = r"\*".repeat(40);
    for pattern in [
        "**/[Bb]uild[Ll]og.*",
        "[Dd][Ee][Bb][Uu][Gg]/**",
        "*.{py,sh,toml}",
        "**/**/****/x",
        &uuid,
        &escaped,
        "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*",
    ] {
        parse_valid(&format!("commands = ['a']\nignore = ['{pattern}']\noutputs = ['{pattern}']"));
    }
}

#[test]
fn errors_name_line_and_hint() {
    let long = format!("commands = ['{}']", "x".repeat(101 << 10));
    let many = format!("commands = [{}]", "'a',".repeat(10_000));
    let patterns = format!("commands = ['a']\nignore = [{}]", "'a',".repeat(1001));
    let stars = format!("commands = ['a']\nignore = ['{}']", "*a".repeat(17));
    let classes = format!("commands = ['a']\noutputs = ['{}']", "[ab]".repeat(65));
    let wildcards = format!("commands = ['a']\nignore = [{}]", "'*a*a*a*a*a',".repeat(801));
    let bytes = format!("commands = ['a']\nignore = [{}]", format!("'{}',", "a".repeat(1000)).repeat(33));
    let huge = "#".repeat(300 << 10);
    let values = format!("commands = ['a']\n[env]\nA = '{}'", "x".repeat(65 << 10));
    let cases = [
        ("", "there are no commands"),
        ("commands = []", "line 1: there are no commands"),
        ("\n\ncommands = 'a'", "line 3: commands is a list; write commands = [\"…\"]"),
        ("commands = 3", "line 1: commands is a list of texts, and not a number"),
        ("commands = ['a',\n3]", "line 2: an entry of commands is a text in quotes, and not a number"),
        ("commands = ['a', '  ']", "line 1: a command is empty"),
        ("commands = [\"a\\u0000\"]", "line 1: an entry of commands has a NUL"),
        (&many, "line 1: there are 10000 commands, and 1000 are allowed"),
        (&long, "line 1: a command has 103424 bytes"),
        (&huge, "the file has 307200 bytes"),
        ("commands = ['a'\n", "line"),
        ("not toml at all", "line 1: this is not TOML"),
        ("commands = ['a']\ncommands = ['b']", "line 2: this is not TOML"),
        ("commands = ['a']\ncomands = []", "line 2: there is no key 'comands'; did you mean commands?"),
        (
            "commands = ['a']\ninstance_type = '1xH100'",
            "line 2: there is no key 'instance_type'; a job runs on a cluster",
        ),
        ("[job]\ncommands = ['a']", "line 1: there is no key 'job'; sections are no longer supported"),
        ("commands = ['a']\n[output]\nfiles = []", "line 2: there is no key 'output'; write outputs"),
        ("commands = ['a']\noutputs = ['/etc/passwd']", "line 2: the output '/etc/passwd' is absolute"),
        ("commands = ['a']\noutputs = ['a/../../b']", "has '..' in it"),
        ("commands = ['a']\noutputs = ['~/x']", "begins with '~'"),
        ("commands = ['a']\noutputs = ['./']", "is empty"),
        ("commands = ['a']\nignore = [\"a\\nb\"]", "has more than one line"),
        (&patterns, "ignore has 1001 entries"),
        (&stars, "line 2: an entry of ignore has 17 stars, and 16 are allowed"),
        (&classes, "line 2: an entry of outputs has 65 wildcards, and 64 are allowed"),
        (&wildcards, "the entries of ignore have 4005 wildcards together, and 4000 are allowed"),
        (&bytes, "the entries of ignore have 33000 bytes together, and 32768 are allowed"),
        ("commands = ['a']\nname = 'My Job'", "line 2: a name has 1 to 63 characters"),
        ("commands = ['a']\nnodes = 2", "line 2: nodes is \"first\" or \"all\""),
        ("commands = ['a']\ntimeout = 0", "line 2: timeout is a number of seconds"),
        ("commands = ['a']\ntimeout = 1.5", "line 2: timeout"),
        ("commands = ['a']\ntimeout = '366d'", "line 2: timeout"),
        ("commands = ['a']\nretries = 101", "line 2: retries is a number from 0 to 100"),
        ("commands = ['a']\nretries = -1", "line 2: retries is a number"),
        ("commands = ['a']\nretries = { exit_codes = [1] }", "line 2: retries does not say how often"),
        ("commands = ['a']\nretries = { count = 1, exit_codes = [0] }", "from 1 to 255"),
        ("commands = ['a']\nretries = { count = 1, codes = [1] }", "there is no key 'codes' in retries"),
        ("commands = ['a']\nvenv = 'yes'", "line 2: venv is true or false, and not a text"),
        ("commands = ['a']\nenv = ['A=1']", "line 2: env is a table and not a list"),
        ("commands = ['a']\n[env]\n'A B' = '1'", "line 3: 'A B' cannot be the name of a variable"),
        ("commands = ['a']\n[env]\n1A = '1'", "cannot be the name of a variable"),
        ("commands = ['a']\n[env]\nHOME = '/x'", "line 3: HOME identifies the user"),
        ("commands = ['a']\n[env]\nA = []", "line 3: A is a text in quotes, and not a list"),
        (&values, "line 3: A is too long"),
    ];
    for (text, expected) in cases {
        let wrong = parse(text).expect_err(&text[..text.len().min(80)]).to_string();
        assert!(wrong.contains(expected), "{wrong:?} does not say {expected:?}");
    }
}

#[test]
fn first_error_is_reported() {
    let wrong = parse("zebra = 1\nant = 2").unwrap_err();
    assert_eq!(wrong.line, Some(1));
}

#[test]
fn debug_hides_variable_values() {
    let config = parse_valid("commands = ['a']\n[env]\nTOKEN = 'hunter2'");
    let shown = format!("{config:?}");
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
}

proptest::proptest! {
    #[test]
    fn parse_accepts_any_text(text in ".{0,400}") {
        let _ = parse(&text);
    }

    #[test]
    fn parse_accepts_any_value(
        key in "commands|outputs|ignore|name|env|nodes|timeout|retries|venv|[a-z]{1,8}",
        value in r#"-?[0-9]{1,25}|'[^'\n]{0,20}'|\[['a-z, ]{0,20}\]|\{ *[a-z]{0,6} *=? *[0-9a-z\[\]]{0,6} *\}|true|[0-9.e+-]{1,8}"#,
    ) {
        let _ = parse(&format!("commands = ['a']\n{key} = {value}"));
        let _ = parse(&format!("{key} = {value}"));
    }
}
