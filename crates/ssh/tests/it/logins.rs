//! Who gets in.

use crate::front::{Front, command, finish, text};

#[tokio::test]
async fn another_key_and_another_name_are_refused() {
    let front = Front::start().await;
    for (key, user) in [("other", "ubuntu"), ("key", "root")] {
        let target = format!("{user}@127.0.0.1");
        let output = finish(command("ssh", front.options_with(key), &[&target, "echo in"]), b"").await;
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(255), String::new()), "{key} {user}");
        let words = text(&output.stderr);
        assert!(words.contains("Permission denied (publickey)"), "{words}");
    }
}

#[tokio::test]
async fn the_right_key_gets_in_after_wrong_ones() {
    let front = Front::start().await;
    let mut options = front.options_with("other");
    options.extend(["-i".to_owned(), front.path("key").display().to_string()]);
    let output = finish(command("ssh", options, &["ubuntu@127.0.0.1", "echo in"]), b"").await;
    assert_eq!(text(&output.stdout), "in\n", "{}", text(&output.stderr));
}

#[tokio::test]
async fn nobody_gets_in_without_a_key() {
    let front = Front::start().await;
    let methods = "PreferredAuthentications=none,password,keyboard-interactive";
    let output = finish(front.ssh(&["-o", methods, "ubuntu@127.0.0.1", "echo in"]), b"").await;
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("Permission denied (publickey)"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn only_fast_ciphers_are_offered() {
    let front = Front::start().await;
    let output = finish(front.ssh(&["-v", "ubuntu@127.0.0.1", "true"]), b"").await;
    let words = text(&output.stderr);
    assert!(
        words.contains("cipher: aes128-gcm@openssh.com") || words.contains("cipher: aes256-gcm@openssh.com"),
        "{words}"
    );
    let slow = finish(front.ssh(&["-c", "chacha20-poly1305@openssh.com", "ubuntu@127.0.0.1", "true"]), b"").await;
    assert_eq!(slow.status.code(), Some(255));
}
