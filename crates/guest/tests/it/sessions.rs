//! Programs: how they end, their input and output, and their environment.

use std::sync::Arc;

use tarn_link::{FromGuest, Health, Program, Purpose, Session, ToGuest};

use crate::fixture::{Fixture, OTHER_UID, eventually, exec, finish, read_until};

/// The exit code arrives after all output.
#[tokio::test]
async fn exit_code_follows_all_output() {
    let fixture = Fixture::new();
    let outcome = fixture.run("echo out; echo err >&2; exit 7").await;
    assert_eq!(outcome.output, b"out\n");
    assert_eq!(outcome.errors, b"err\n");
    assert_eq!(outcome.end, FromGuest::Exited { code: 7 });
}

/// The signal that ended a program is reported.
#[tokio::test]
async fn signal_death_is_reported() {
    let fixture = Fixture::new();
    let outcome = fixture.run("ulimit -c 0; kill -SEGV $$").await;
    assert_eq!(outcome.end, FromGuest::Killed { signal: "SEGV".into(), core: false });
}

/// A client can send signals.
#[tokio::test]
async fn client_sends_signals() {
    let fixture = Fixture::new();
    let mut link =
        fixture.begin(exec("trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.01; done")).await;
    read_until(&mut link, "ready").await;
    link.1.message(&ToGuest::Signal("NONSENSE".into())).await.unwrap();
    link.1.message(&ToGuest::Signal("USR1".into())).await.unwrap();
    let outcome = finish(&mut link).await;
    assert!(outcome.text().contains("got it"), "{outcome:?}");
    assert_eq!(outcome.end, FromGuest::Exited { code: 3 });
}

/// Input and its end reach the program.
#[tokio::test]
async fn input_reaches_the_program() {
    let fixture = Fixture::new();
    let mut link = fixture.begin(exec("cat; echo end")).await;
    link.1.data(b"some input\n").await.unwrap();
    link.1.eof().await.unwrap();
    assert_eq!(finish(&mut link).await.output, b"some input\nend\n");
}

/// Large data comes back unchanged.
#[tokio::test]
async fn large_data_round_trips() {
    let fixture = Fixture::new();
    let data: Vec<u8> = (0..24 << 20).map(|index: u32| (index ^ (index >> 9)) as u8).collect();
    let (mut reader, mut writer) = fixture.begin(exec("cat")).await;
    let sent = data.clone();
    let sending = tokio::spawn(async move {
        writer.data(&sent).await.unwrap();
        writer.eof().await.unwrap();
        writer
    });
    let mut got = Vec::with_capacity(data.len());
    while let Some(tarn_link::Frame::Data(piece)) = reader.read().await.unwrap() {
        got.extend(piece);
    }
    sending.await.unwrap();
    assert!(got == data, "{} of {} bytes, or others", got.len(), data.len());
}

/// Input that the program does not read blocks nothing.
#[tokio::test]
async fn unread_input_does_not_block() {
    let fixture = Fixture::new();
    let mut link = fixture.begin(exec("exec <&-; echo closed; sleep 0.2; exit 4")).await;
    read_until(&mut link, "closed").await;
    link.1.data(&vec![0; 3 << 20]).await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Exited { code: 4 });
}

/// A signal overtakes pending input.
#[tokio::test]
async fn signal_overtakes_pending_input() {
    let fixture = Fixture::new();
    let mut link = fixture.begin(exec("echo ready; sleep 1000")).await;
    read_until(&mut link, "ready").await;
    link.1.data(&vec![0; 512 << 10]).await.unwrap();
    link.1.message(&ToGuest::Signal("TERM".into())).await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Killed { signal: "TERM".into(), core: false });
}

/// Background programs do not keep a session open.
#[tokio::test]
async fn background_programs_do_not_hold_a_session() {
    let fixture = Fixture::new();
    let outcome = fixture.run("sleep 1000 & echo $!").await;
    assert_eq!(outcome.end, FromGuest::Exited { code: 0 });
    let pid: i32 = outcome.text().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it still runs");
}

/// A program gets HUP when its stream breaks.
#[tokio::test]
async fn broken_stream_hangs_up() {
    let fixture = Fixture::new();
    let gone = fixture.root.home().join("gone");
    let mut link = fixture
        .begin(exec(&format!(
            "trap 'kill $! 2>/dev/null; echo > {}; exit' HUP; sleep 1000 & echo on; wait",
            gone.display()
        )))
        .await;
    read_until(&mut link, "on").await;
    drop(link);
    eventually("the program noticed", || gone.exists()).await;
}

/// A session has the environment of the user and the client's variables.
#[tokio::test]
async fn session_environment_extends_the_users() {
    let fixture = Fixture::new();
    fixture.root.write("etc/environment", "FROM_FILE=\"yes sir\"\nLANG=de_DE.UTF-8\nLD_PRELOAD=/evil\n");
    let wishes =
        [("TARN_X", "1"), ("LD_PRELOAD", "/evil"), ("PATH", "/evil"), ("LC_ALL", "C"), ("HOME", "/evil"), ("1X", "x")];
    let session = Session {
        environment: wishes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        connection: Some(("10.0.0.9".into(), 4711, "10.0.0.1".into(), 22)),
        ..exec("env; pwd")
    };
    let mut link = fixture.begin(session).await;
    let text = finish(&mut link).await.text();
    let home = fixture.root.home();
    let lines: Vec<&str> = text.lines().collect();
    for expected in [
        "FROM_FILE=yes sir",
        "LANG=de_DE.UTF-8",
        "TARN_X=1",
        "LC_ALL=C",
        "USER=tester",
        "LOGNAME=tester",
        "SHELL=/bin/bash",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SSH_CONNECTION=10.0.0.9 4711 10.0.0.1 22",
        "SSH_CLIENT=10.0.0.9 4711 22",
        &format!("HOME={}", home.display()),
        &home.display().to_string(),
    ] {
        assert!(lines.contains(&expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("evil") && !text.contains("SSH_TTY"), "{text}");
}

/// A session starts without a home directory.
#[tokio::test]
async fn missing_home_is_tolerated() {
    let fixture = Fixture::new();
    std::fs::remove_dir(fixture.root.home()).unwrap();
    let outcome = fixture.run("pwd").await;
    assert_eq!(outcome.text(), "/\n");
    assert!(String::from_utf8_lossy(&outcome.errors).contains("home directory"));
}

/// Programs run with the ids of the user only.
#[tokio::test]
async fn programs_run_with_user_ids() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let outcome = fixture.run("id -u; id -g; id -G; umask; cat /etc/shadow; grep CapEff /proc/self/status").await;
    let text = outcome.text();
    assert!(text.starts_with(&format!("{OTHER_UID}\n{OTHER_UID}\n{OTHER_UID} 4242\n0022\n")), "{text}");
    assert!(text.ends_with("CapEff:\t0000000000000000\n"), "{text}");
    assert!(String::from_utf8_lossy(&outcome.errors).contains("Permission denied"));
}

/// A program that cannot be started is refused with a reason.
#[tokio::test]
async fn failed_start_is_refused_with_reason() {
    let fixture = Fixture::new();
    let line = Session { program: Program::Exec(b"a\0b".to_vec()), ..Session::default() };
    let refused = fixture.ask(Purpose::Session(Box::new(line))).await.unwrap_err();
    assert!(refused.to_string().contains("zero byte"), "{refused}");
    fixture.root.write("etc/passwd", "tester:x:0:0::/:/no/such/shell\n");
    let refused = fixture.ask(Purpose::Session(Box::new(exec("true")))).await.unwrap_err();
    assert!(refused.to_string().contains("could not be started"), "{refused}");
    fixture.root.write("etc/passwd", "");
    let refused = fixture.ask(Purpose::Session(Box::new(exec("true")))).await.unwrap_err();
    assert!(refused.to_string().contains("no user tester"), "{refused}");
}

/// The health report counts open sessions.
#[tokio::test]
async fn health_counts_open_sessions() {
    let fixture = Fixture::new();
    let health = async || match fixture.ask(Purpose::Health).await.unwrap().0 {
        tarn_link::Reply::Health(health) => *health,
        other => panic!("{other:?}"),
    };
    let Health { processes, sessions, version, .. } = health().await;
    assert!(processes > 0 && sessions == 0 && !version.is_empty());
    let mut link = fixture.begin(exec("echo on; cat")).await;
    read_until(&mut link, "on").await;
    assert_eq!(health().await.sessions, 1);
    link.1.eof().await.unwrap();
    finish(&mut link).await;
    eventually("the session is no longer counted", || Arc::strong_count(&fixture.guest) == 1).await;
    assert_eq!(health().await.sessions, 0);
}
