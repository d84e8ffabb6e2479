//! The client's authentication agent inside a session.

use std::path::Path;

use tarn_link::{Endpoint, Frame, FromGuest, Purpose, Reply, Session};

use crate::fixture::{DEADLINE, Fixture, Link, exec, finish, read_until};

async fn incoming((reader, _): &mut Link) -> (u64, Endpoint) {
    let reading = async {
        loop {
            if let Frame::Message(message) = reader.read().await.unwrap().expect("the session goes on") {
                match Frame::parse(&message).unwrap() {
                    FromGuest::Incoming { id, from } => return (id, from),
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("a program connects to the agent")
}

/// Programs reach the agent, and its socket is removed with the session.
#[tokio::test]
async fn agent_serves_the_session_only() {
    let fixture = Fixture::new();
    let script = "echo sock=$SSH_AUTH_SOCK=; stat -c %a,%u $(dirname $SSH_AUTH_SOCK); \
        python3 -c 'import os,socket; s=socket.socket(socket.AF_UNIX); s.connect(os.environ[\"SSH_AUTH_SOCK\"]); \
        s.sendall(b\"question\"); print(s.recv(100).decode(), flush=True)'; cat";
    let mut link = fixture.begin(Session { agent: true, ..exec(script) }).await;
    let text = read_until(&mut link, &format!("700,{}\n", rustix::process::getuid().as_raw())).await;
    let path = text.split('=').nth(1).unwrap().to_owned();
    assert!(Path::new(&path).exists(), "{path}");
    let (id, from) = incoming(&mut link).await;
    assert_eq!(from, Endpoint::Agent);
    let (answer, (mut reader, mut writer)) = fixture.ask(Purpose::Take { id }).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    assert_eq!(reader.read().await.unwrap(), Some(Frame::Data("question".into())));
    writer.data(b"the answer").await.unwrap();
    read_until(&mut link, "the answer").await;
    link.1.eof().await.unwrap();
    assert_eq!(finish(&mut link).await.end, FromGuest::Exited { code: 0 });
    crate::fixture::eventually("the socket is gone", || !Path::new(&path).parent().unwrap().exists()).await;
}

/// A session without an agent has no agent socket.
#[tokio::test]
async fn session_without_agent_has_no_socket() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run("echo \"[$SSH_AUTH_SOCK]\"").await.text(), "[]\n");
}
