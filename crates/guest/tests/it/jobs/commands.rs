//! The environment of commands, and that they share one shell.

use std::os::unix::fs::PermissionsExt as _;

use tarn_link::JobEnd;

use super::{order, run};
use crate::fixture::{Fixture, OTHER_UID};

/// All commands of a job share one shell.
#[tokio::test]
async fn commands_share_one_shell() {
    let fixture = Fixture::new();
    let cases: &[(&[&str], &str, u8)] = &[
        (&["cd /", "pwd"], "/\n", 0),
        (&["export A=1; B=2", "echo $A$B"], "12\n", 0),
        (&["f() { echo f$1; }", "f 3"], "f3\n", 0),
        (&["exit 0", "echo never"], "", 0),
        (&["exit 3", "echo never"], "", 3),
        (&["set -e", "false; echo never"], "", 1),
        (&["false; echo still here"], "still here\n", 0),
        (&["set -u", "echo a"], "a\n", 0),
        (&["trap 'echo bye' EXIT", "exit 2"], "bye\n", 2),
        (&["echo 'it'\\''s' \"$0\" >/dev/null; echo 'a\nb'"], "a\nb\n", 0),
        (&["cat <<END\nhere\nEND\n", "echo there"], "here\nthere\n", 0),
        (&["# only words", "echo $?"], "0\n", 0),
        (&["", "echo empty"], "empty\n", 0),
        (&["echo \"$#\""], "0\n", 0),
        (&["exec echo replaced", "echo never"], "replaced\n", 0),
        (&[], "", 0),
    ];
    for (commands, output, code) in cases {
        let seen = run(&fixture, &order(commands)).await;
        assert_eq!(seen.text(), *output, "{commands:?}");
        seen.assert_end(JobEnd::Exited { code: *code });
    }
}

/// A syntax error fails only its own command.
#[tokio::test]
async fn syntax_error_fails_its_command() {
    let fixture = Fixture::new();
    let seen = run(&fixture, &order(&["echo before", "if then fi (", "echo never"])).await;
    assert!(seen.text().starts_with("before\n") && seen.text().contains("syntax error"), "{}", seen.text());
    assert!(!seen.text().contains("never"));
    assert!(matches!(seen.end, Some(tarn_link::FromJob::Ended(JobEnd::Exited { code: 1 | 2 }))), "{seen:?}");
    run(&fixture, &order(&["no-such-program"])).await.assert_end(JobEnd::Exited { code: 127 });
}

/// Long commands run.
#[tokio::test]
async fn long_commands_run() {
    let fixture = Fixture::new();
    let text = "x".repeat(900 << 10);
    let seen = run(&fixture, &order(&[&format!("A={text}"), "echo ${#A}"])).await;
    assert_eq!(seen.text(), format!("{}\n", text.len()));
    let many: Vec<&str> = vec!["I=$((I+1))"; 9_999];
    let seen = run(&fixture, &order(&[many.as_slice(), &["echo $I"]].concat())).await;
    assert_eq!(seen.text(), "9999\n");
}

/// Output and errors arrive in order, and the input is empty.
#[tokio::test]
async fn output_keeps_order_and_input_is_empty() {
    let fixture = Fixture::new();
    let lines: String = (0..100).map(|number| format!("echo {number}; echo {number} >&2;")).collect();
    let seen = run(&fixture, &order(&[&lines, "cat; echo end; test -t 0 || test -t 1 || echo no terminal"])).await;
    let expected: String = (0..100).map(|number| format!("{number}\n{number}\n")).collect();
    assert_eq!(seen.text(), expected + "end\nno terminal\n");
}

/// A job has the environment of the user and its own variables.
#[tokio::test]
async fn job_environment_extends_the_users() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    fixture.root.write("etc/environment", "FROM_FILE=yes\n");
    let mut mine =
        order(&["env", "pwd; id -u; umask; cat $TP_HOSTFILE; ls -l /proc/self/fd | grep -c -e socket -e jobs"]);
    mine.hosts = vec!["node-0".into(), "node-1".into()];
    let wishes =
        [("A", "x y\nz"), ("HOME", "/evil"), ("LD_LIBRARY_PATH", "/own"), ("TP_JOB_ID", "evil"), ("NODE_RANK", "1")];
    mine.environment = wishes.map(|(name, value)| (name.into(), value.into())).to_vec();
    let seen = run(&fixture, &mine).await;
    let text = seen.text();
    let home = fixture.root.home();
    for expected in [
        "FROM_FILE=yes",
        "A=x y",
        "LD_LIBRARY_PATH=/own",
        "PYTHONUNBUFFERED=1",
        "NODE_RANK=1",
        "USER=tester",
        "LANG=C.UTF-8",
        &format!("HOME={}", home.display()),
        &format!("TP_JOB_ID={}", mine.job),
        &home.join("jobs").join(&mine.job).display().to_string(),
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("evil"), "{text}");
    assert!(text.contains(&format!("\n{OTHER_UID}\n0022\nnode-0\nnode-1\n0\n")), "{text}");
}

/// A job can have its own Python virtual environment.
#[tokio::test]
async fn python_gets_a_virtual_environment() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let mut mine = order(&[
        "command -v python3; command -v pip || echo no pip",
        "python3 -c 'import sys; print(sys.prefix != sys.base_prefix, sys.prefix)'; echo $VIRTUAL_ENV; ls -A",
    ]);
    mine.venv = true;
    if !std::path::Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped: this test needs python3");
        return;
    }
    let venv = fixture.root.home().join("jobs/.venvs").join(&mine.job);
    let place = venv.display();
    let seen = run(&fixture, &mine).await;
    let text = seen.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&format!("{place}/bin/python3").as_str()), "{text}");
    assert!(text.contains(&format!("{place}/bin/pip\n")) || text.contains("no pip"), "{text}");
    assert!(text.ends_with(&format!("True {place}\n{place}\n")), "{text}");
    // The next attempt finds what the first one installed.
    std::fs::write(venv.join("mark"), "").unwrap();
    mine.attempt = 2;
    mine.commands = vec!["ls $VIRTUAL_ENV/mark".into()];
    assert_eq!(run(&fixture, &mine).await.text(), format!("{place}/mark\n"));
    fixture.ask(tarn_link::Purpose::ForgetJob { job: mine.job.clone() }).await.unwrap();
    assert!(!venv.exists());
}

/// `uv` creates the virtual environment if it is installed.
#[tokio::test]
async fn uv_creates_the_environment() {
    let fixture = Fixture::new();
    let tools = fixture.root.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let uv = |text: &str| {
        std::fs::write(tools.join("uv"), text).unwrap();
        std::fs::set_permissions(tools.join("uv"), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run_with_uv = async || {
        let mut mine = order(&["echo ${VIRTUAL_ENV##*/}"]);
        mine.venv = true;
        mine.environment = vec![("PATH".into(), format!("{}:/usr/bin:/bin", tools.display()))];
        (run(&fixture, &mine).await.text(), mine.job)
    };
    // The last argument is the directory; the Python there is asked to install `pip`.
    uv(
        "#!/bin/sh\nfor place; do :; done\nmkdir -p $place/bin\nprintf '#!/bin/sh\\n' >$place/bin/python3\nchmod 755 $place/bin/python3\n\
        echo made by $1 $2 $3\n",
    );
    let (text, job) = run_with_uv().await;
    assert_eq!(text, format!("made by venv --quiet --system-site-packages\n{job}\n"));
    if std::path::Path::new("/usr/bin/python3").exists() {
        uv("#!/bin/sh\nexit 1\n");
        let (text, job) = run_with_uv().await;
        assert_eq!(text, format!("{job}\n"), "a failing uv is not the only way");
    }
}

/// Without Python, a job runs and its log says so.
#[tokio::test]
async fn missing_python_leaves_a_note() {
    let fixture = Fixture::new();
    let mut mine = order(&["echo here"]);
    mine.venv = true;
    mine.environment = vec![("PATH".into(), "/nowhere".into())];
    let seen = run(&fixture, &mine).await;
    assert_eq!(seen.text(), "tarn: there is no python3 here, and so no virtual environment.\nhere\n");
    seen.assert_end(JobEnd::Exited { code: 0 });
}
