//! Sessions with a terminal.

use tarn_link::{FromGuest, Program, Pty, Session, ToGuest, Window};

use crate::fixture::{Fixture, exec, finish, read_until};

fn pty(columns: u16, rows: u16) -> Option<Pty> {
    let window = Window { columns, rows, width: 640, height: 480 };
    Some(Pty { term: "xterm-256color".into(), window, modes: Vec::new() })
}

/// A terminal has the client's size and follows its changes.
#[tokio::test]
async fn terminal_follows_client_size() {
    let fixture = Fixture::new();
    let script = "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done";
    let mut link = fixture.begin(Session { pty: pty(100, 40), ..exec(script) }).await;
    let text = read_until(&mut link, "ready").await;
    assert!(text.starts_with("40 100\r\n"), "{text}");
    let window = Window { columns: 77, rows: 33, width: 0, height: 0 };
    link.1.message(&ToGuest::Resize(window)).await.unwrap();
    read_until(&mut link, "33 77").await;
    assert_eq!(finish(&mut link).await.end, FromGuest::Exited { code: 0 });
}

/// The terminal is the controlling terminal of the program.
#[tokio::test]
async fn terminal_controls_the_program() {
    let fixture = Fixture::new();
    let script = "tty; echo $TERM $SSH_TTY; ps -o tpgid=,pgid= -p $$ | tr -s ' '; (echo tty works > /dev/tty)";
    let mut link = fixture.begin(Session { pty: pty(80, 24), ..exec(script) }).await;
    let text = finish(&mut link).await.text();
    let tty = text.lines().next().unwrap().trim().to_owned();
    assert!(tty.starts_with("/dev/pts/"), "{text}");
    assert!(text.contains(&format!("xterm-256color {tty}")), "{text}");
    assert!(text.contains("tty works"), "{text}");
}

/// Terminal modes are set by their opcodes.
#[tokio::test]
async fn terminal_modes_are_set() {
    let fixture = Fixture::new();
    // No echo (53), interrupt is ^A (1), quit is disabled (2), no output processing (70), and unknown opcodes.
    let modes = vec![(53, 0), (1, 1), (2, 255), (70, 0), (0, 1), (200, 7), (11, 3)];
    let pty = Pty { modes, ..pty(80, 24).unwrap() };
    let mut link = fixture.begin(Session { pty: Some(pty), ..exec("stty -a") }).await;
    let text = finish(&mut link).await.text();
    for expected in [" -echo ", "intr = ^A;", "quit = <undef>;", "-opost"] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

/// Keys and signals reach the foreground program.
#[tokio::test]
async fn foreground_gets_keys_and_signals() {
    let fixture = Fixture::new();
    let mut link = fixture.begin(Session { pty: pty(80, 24), ..exec("echo ready; cat; echo after") }).await;
    read_until(&mut link, "ready").await;
    link.1.data(b"typed\n").await.unwrap();
    read_until(&mut link, "typed\r\ntyped\r\n").await;
    link.1.data(b"\x04").await.unwrap();
    read_until(&mut link, "after").await;
    let mut link = fixture.begin(Session { pty: pty(80, 24), ..exec("echo ready; sleep 1000") }).await;
    read_until(&mut link, "ready").await;
    link.1.data(b"\x03").await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Killed { signal: "INT".into(), core: false });
}

/// A login shell shows the greeting and works.
#[tokio::test]
async fn login_shell_greets() {
    let fixture = Fixture::new();
    fixture.root.write("etc/motd", "Welcome to the instance\n");
    let shell = Session { program: Program::Shell, pty: pty(80, 24), ..Session::default() };
    let mut link = fixture.begin(shell.clone()).await;
    read_until(&mut link, "Welcome to the instance\r\n").await;
    link.1.data(b"echo $0 is $((40 + 2)); exit 5\n").await.unwrap();
    let outcome = finish(&mut link).await;
    assert!(outcome.text().contains("-bash is 42"), "{outcome:?}");
    assert_eq!(outcome.end, FromGuest::Exited { code: 5 });
    fixture.root.write("home/tester/.hushlogin", "");
    let mut link = fixture.begin(shell).await;
    link.1.data(b"exit\n").await.unwrap();
    assert!(!finish(&mut link).await.text().contains("Welcome"));
}

/// All output of a terminal arrives.
#[tokio::test]
async fn terminal_output_is_complete() {
    let fixture = Fixture::new();
    let mut link = fixture.begin(Session { pty: pty(80, 24), ..exec("seq 1 200000; echo the end") }).await;
    let text = finish(&mut link).await.text();
    assert!(text.ends_with("200000\r\nthe end\r\n"), "…{}", &text[text.len().saturating_sub(60)..]);
    assert_eq!(text.lines().count(), 200_001);
}

/// A broken stream ends the shell.
#[tokio::test]
async fn broken_stream_ends_the_shell() {
    let fixture = Fixture::new();
    let shell = Session { program: Program::Shell, pty: pty(80, 24), ..Session::default() };
    let mut link = fixture.begin(shell).await;
    // The echo of the terminal differs from the output of the shell.
    link.1.data(b"echo pid=$$ do''ne\n").await.unwrap();
    let text = read_until(&mut link, "done").await;
    let pid = text.split("pid=").find_map(|part| part.split(' ').next()?.parse::<i32>().ok()).unwrap();
    drop(link);
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    crate::fixture::eventually("the shell is gone", || rustix::process::test_kill_process(pid).is_err()).await;
}
