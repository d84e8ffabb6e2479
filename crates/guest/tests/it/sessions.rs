//! Programs: how they end, what they read and write, what they find around them.

use std::sync::Arc;

use tarn_link::{FromGuest, Health, Program, Purpose, Session, ToGuest};

use crate::lab::{Lab, SOMEBODY, eventually, exec, finish, read_until};

#[tokio::test]
async fn a_program_ends_with_its_code_after_all_of_its_output() {
    let lab = Lab::new();
    let outcome = lab.run("echo out; echo err >&2; exit 7").await;
    assert_eq!(outcome.output, b"out\n");
    assert_eq!(outcome.errors, b"err\n");
    assert_eq!(outcome.end, FromGuest::Exited { code: 7 });
}

#[tokio::test]
async fn a_program_that_dies_of_a_signal_says_so() {
    let lab = Lab::new();
    let outcome = lab.run("ulimit -c 0; kill -SEGV $$").await;
    assert_eq!(outcome.end, FromGuest::Killed { signal: "SEGV".into(), core: false });
}

#[tokio::test]
async fn a_client_can_send_signals() {
    let lab = Lab::new();
    let mut link = lab.begin(exec("trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.01; done")).await;
    read_until(&mut link, "ready").await;
    link.1.message(&ToGuest::Signal("NONSENSE".into())).await.unwrap();
    link.1.message(&ToGuest::Signal("USR1".into())).await.unwrap();
    let outcome = finish(&mut link).await;
    assert!(outcome.text().contains("got it"), "{outcome:?}");
    assert_eq!(outcome.end, FromGuest::Exited { code: 3 });
}

#[tokio::test]
async fn input_reaches_the_program_and_ends() {
    let lab = Lab::new();
    let mut link = lab.begin(exec("cat; echo end")).await;
    link.1.data(b"some input\n").await.unwrap();
    link.1.eof().await.unwrap();
    assert_eq!(finish(&mut link).await.output, b"some input\nend\n");
}

#[tokio::test]
async fn much_data_comes_back_as_it_went() {
    let lab = Lab::new();
    let data: Vec<u8> = (0..24 << 20).map(|index: u32| (index ^ (index >> 9)) as u8).collect();
    let (mut reader, mut writer) = lab.begin(exec("cat")).await;
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

#[tokio::test]
async fn input_that_nobody_reads_holds_nothing_up() {
    let lab = Lab::new();
    let mut link = lab.begin(exec("exec <&-; echo closed; sleep 0.2; exit 4")).await;
    read_until(&mut link, "closed").await;
    link.1.data(&vec![0; 3 << 20]).await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Exited { code: 4 });
}

#[tokio::test]
async fn a_signal_gets_past_input_that_waits() {
    let lab = Lab::new();
    let mut link = lab.begin(exec("echo ready; sleep 1000")).await;
    read_until(&mut link, "ready").await;
    link.1.data(&vec![0; 512 << 10]).await.unwrap();
    link.1.message(&ToGuest::Signal("TERM".into())).await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Killed { signal: "TERM".into(), core: false });
}

#[tokio::test]
async fn programs_in_the_background_do_not_hold_a_session() {
    let lab = Lab::new();
    let outcome = lab.run("sleep 1000 & echo $!").await;
    assert_eq!(outcome.end, FromGuest::Exited { code: 0 });
    let pid: i32 = outcome.text().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it still runs");
}

#[tokio::test]
async fn a_broken_stream_hangs_the_program_up() {
    let lab = Lab::new();
    let gone = lab.root.home().join("gone");
    let mut link =
        lab.begin(exec(&format!("trap 'echo > {}; exit' HUP; echo on; sleep 1000 & wait", gone.display()))).await;
    read_until(&mut link, "on").await;
    drop(link);
    eventually("the program noticed", || gone.exists()).await;
}

#[tokio::test]
async fn the_environment_is_the_users_with_the_clients_wishes() {
    let lab = Lab::new();
    lab.root.write("etc/environment", "FROM_FILE=\"yes sir\"\nLANG=de_DE.UTF-8\nLD_PRELOAD=/evil\n");
    let wishes =
        [("TARN_X", "1"), ("LD_PRELOAD", "/evil"), ("PATH", "/evil"), ("LC_ALL", "C"), ("HOME", "/evil"), ("1X", "x")];
    let session = Session {
        environment: wishes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        connection: Some(("10.0.0.9".into(), 4711, "10.0.0.1".into(), 22)),
        ..exec("env; pwd")
    };
    let mut link = lab.begin(session).await;
    let text = finish(&mut link).await.text();
    let home = lab.root.home();
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

#[tokio::test]
async fn a_missing_home_is_no_reason_to_refuse() {
    let lab = Lab::new();
    std::fs::remove_dir(lab.root.home()).unwrap();
    let outcome = lab.run("pwd").await;
    assert_eq!(outcome.text(), "/\n");
    assert!(String::from_utf8_lossy(&outcome.errors).contains("home directory"));
}

#[tokio::test]
async fn programs_run_with_the_users_ids_only() {
    let Some(lab) = Lab::of_somebody() else { return };
    let outcome = lab.run("id -u; id -g; id -G; umask; cat /etc/shadow; grep CapEff /proc/self/status").await;
    let text = outcome.text();
    assert!(text.starts_with(&format!("{SOMEBODY}\n{SOMEBODY}\n{SOMEBODY} 4242\n0022\n")), "{text}");
    assert!(text.ends_with("CapEff:\t0000000000000000\n"), "{text}");
    assert!(String::from_utf8_lossy(&outcome.errors).contains("Permission denied"));
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_words() {
    let lab = Lab::new();
    let line = Session { program: Program::Exec(b"a\0b".to_vec()), ..Session::default() };
    let refused = lab.ask(Purpose::Session(Box::new(line))).await.unwrap_err();
    assert!(refused.to_string().contains("zero byte"), "{refused}");
    lab.root.write("etc/passwd", "tester:x:0:0::/:/no/such/shell\n");
    let refused = lab.ask(Purpose::Session(Box::new(exec("true")))).await.unwrap_err();
    assert!(refused.to_string().contains("was not started"), "{refused}");
    lab.root.write("etc/passwd", "");
    let refused = lab.ask(Purpose::Session(Box::new(exec("true")))).await.unwrap_err();
    assert!(refused.to_string().contains("no user tester"), "{refused}");
}

#[tokio::test]
async fn health_counts_open_sessions() {
    let lab = Lab::new();
    let health = async || match lab.ask(Purpose::Health).await.unwrap().0 {
        tarn_link::Answer::Health(health) => *health,
        other => panic!("{other:?}"),
    };
    let Health { processes, sessions, version, .. } = health().await;
    assert!(processes > 0 && sessions == 0 && !version.is_empty());
    let mut link = lab.begin(exec("echo on; cat")).await;
    read_until(&mut link, "on").await;
    assert_eq!(health().await.sessions, 1);
    link.1.eof().await.unwrap();
    finish(&mut link).await;
    eventually("the session is no longer counted", || Arc::strong_count(&lab.guest) == 1).await;
    assert_eq!(health().await.sessions, 0);
}
