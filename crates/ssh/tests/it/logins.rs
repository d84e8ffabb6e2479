//! Which logins succeed.

use crate::server::{TestServer, command, finish, text};

/// Another key and another user name are refused.
#[tokio::test]
async fn other_key_and_user_are_refused() {
    let server = TestServer::start().await;
    for (key, user) in [("other", "ubuntu"), ("key", "root")] {
        let target = format!("{user}@127.0.0.1");
        let output = finish(command("ssh", server.options_with(key), &[&target, "echo in"]), b"").await;
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(255), String::new()), "{key} {user}");
        let words = text(&output.stderr);
        assert!(words.contains("Permission denied (publickey)"), "{words}");
    }
}

/// The right key logs in after a wrong one.
#[tokio::test]
async fn right_key_after_wrong_one_logs_in() {
    let server = TestServer::start().await;
    let mut options = server.options_with("other");
    options.extend(["-i".to_owned(), server.path("key").display().to_string()]);
    let output = finish(command("ssh", options, &["ubuntu@127.0.0.1", "echo in"]), b"").await;
    assert_eq!(text(&output.stdout), "in\n", "{}", text(&output.stderr));
}

/// A login requires a key.
#[tokio::test]
async fn login_requires_a_key() {
    let server = TestServer::start().await;
    let methods = "PreferredAuthentications=none,password,keyboard-interactive";
    let output = finish(server.ssh(&["-o", methods, "ubuntu@127.0.0.1", "echo in"]), b"").await;
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("Permission denied (publickey)"), "{}", text(&output.stderr));
}

/// Only fast ciphers are offered.
#[tokio::test]
async fn only_fast_ciphers_are_offered() {
    let server = TestServer::start().await;
    let output = finish(server.ssh(&["-v", "ubuntu@127.0.0.1", "true"]), b"").await;
    let words = text(&output.stderr);
    assert!(
        words.contains("cipher: aes128-gcm@openssh.com") || words.contains("cipher: aes256-gcm@openssh.com"),
        "{words}"
    );
    let slow = finish(server.ssh(&["-c", "chacha20-poly1305@openssh.com", "ubuntu@127.0.0.1", "true"]), b"").await;
    assert_eq!(slow.status.code(), Some(255));
}
