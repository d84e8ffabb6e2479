//! Connections from and to the inside of an instance.

use tarn_link::{Answer, Endpoint, Frame, FromGuest, Purpose};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::lab::{DEADLINE, Lab, Link, SOMEBODY, eventually};

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.into(), port }
}

fn unix(path: impl AsRef<std::path::Path>) -> Endpoint {
    Endpoint::Unix { path: path.as_ref().to_str().unwrap().into() }
}

async fn everything((reader, _): &mut Link) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match tokio::time::timeout(DEADLINE, reader.read()).await.unwrap().unwrap() {
            Some(Frame::Data(data)) => all.extend(data),
            Some(Frame::Eof) | None => return all,
            other => panic!("{other:?}"),
        }
    }
}

/// Answers one connection with what it got, once it got all of it.
async fn echo(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    stream.write_all(&got).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_connection_carries_data_and_both_ends() {
    let lab = Lab::new();
    lab.root.write("etc/hosts", "127.0.0.1 node-7\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "node-7"] {
        let (answer, mut link) = lab.ask(Purpose::Connect(tcp(host, port))).await.unwrap();
        assert_eq!(answer, Answer::Ready);
        let answering = async { echo(listener.accept().await.unwrap().0).await };
        let data = vec![7; 3 << 20];
        let talking = async {
            link.1.data(&data).await.unwrap();
            link.1.eof().await.unwrap();
            everything(&mut link).await
        };
        let ((), got) = tokio::join!(answering, talking);
        assert!(got == data);
        assert_eq!(link.0.read().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_is_refused() {
    let lab = Lab::new();
    // It is held without anybody listening at it, so that no other test can get it meanwhile.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap().port();
    for endpoint in [tcp("127.0.0.1", nobody), tcp("", 1), unix("/no/such/socket"), unix(""), Endpoint::Agent] {
        let refused = lab.ask(Purpose::Connect(endpoint.clone())).await.unwrap_err();
        assert!(refused.to_string().contains("was not made"), "{endpoint:?}: {refused}");
    }
}

#[tokio::test]
async fn sockets_in_the_filesystem_are_reached_with_the_users_rights() {
    let lab = Lab::new();
    let path = lab.root.home().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // A relative path begins at the home.
    for name in [path.to_str().unwrap(), "socket"] {
        let (_, mut link) = lab.ask(Purpose::Connect(unix(name))).await.unwrap();
        let talking = async {
            link.1.data(b"hello").await.unwrap();
            link.1.eof().await.unwrap();
            everything(&mut link).await
        };
        let ((), got) = tokio::join!(async { echo(listener.accept().await.unwrap().0).await }, talking);
        assert_eq!(got, b"hello");
    }
    let Some(lab) = Lab::of_somebody() else { return };
    let roots = lab.root.path().join("socket");
    let _listener = UnixListener::bind(&roots).unwrap();
    std::fs::set_permissions(&roots, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let refused = lab.ask(Purpose::Connect(unix(&roots))).await.unwrap_err();
    assert!(refused.to_string().contains("Permission denied"), "{refused}");
}

async fn take_one(lab: &Lab, link: &mut Link) -> (Endpoint, Link) {
    let message = tokio::time::timeout(DEADLINE, link.0.read_message::<FromGuest>()).await.unwrap().unwrap().unwrap();
    let FromGuest::Incoming { id, from } = message else { panic!("{message:?}") };
    let (answer, taken) = lab.ask(Purpose::Take { id }).await.unwrap();
    assert_eq!(answer, Answer::Ready);
    assert!(lab.ask(Purpose::Take { id }).await.is_err(), "a connection is taken once");
    (from, taken)
}

#[tokio::test]
async fn a_listener_announces_who_comes_and_ends_with_its_stream() {
    let lab = Lab::new();
    let (answer, mut link) = lab.ask(Purpose::Listen(tcp("0.0.0.0", 0))).await.unwrap();
    let Answer::Listening(Endpoint::Tcp { host, port }) = answer else { panic!("{answer:?}") };
    assert_eq!(host, "0.0.0.0");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (from, mut taken) = take_one(&lab, &mut link).await;
    assert_eq!(from, tcp("127.0.0.1", stream.local_addr().unwrap().port()));
    stream.write_all(b"from inside").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(everything(&mut taken).await, b"from inside");
    taken.1.data(b"from outside").await.unwrap();
    taken.1.eof().await.unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "from outside");
    drop(link);
    eventually("the port is free", || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()).await;
}

#[tokio::test]
async fn a_listener_is_for_the_inside_only() {
    let lab = Lab::new();
    let (answer, _link) = lab.ask(Purpose::Listen(tcp("*", 0))).await.unwrap();
    let Answer::Listening(Endpoint::Tcp { port, .. }) = answer else { panic!("{answer:?}") };
    // Another address of the loopback interface stands for any other address of the machine.
    assert!(TcpStream::connect(("127.0.0.2", port)).await.is_err());
    for endpoint in [tcp("", 22), tcp("", 1023), tcp("127.0.0.1", port), Endpoint::Agent] {
        assert!(lab.ask(Purpose::Listen(endpoint.clone())).await.is_err(), "{endpoint:?}");
    }
}

#[tokio::test]
async fn sockets_in_the_filesystem_are_made_and_removed_as_the_user() {
    let (lab, uid) = match Lab::of_somebody() {
        Some(lab) => (lab, SOMEBODY),
        None => (Lab::new(), rustix::process::getuid().as_raw()),
    };
    let path = lab.root.home().join("listening");
    let (answer, mut link) = lab.ask(Purpose::Listen(unix(&path))).await.unwrap();
    assert_eq!(answer, Answer::Listening(unix(&path)));
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap()), uid);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let (_, mut taken) = take_one(&lab, &mut link).await;
    stream.write_all(b"hello").await.unwrap();
    drop(stream);
    assert_eq!(everything(&mut taken).await, b"hello");
    assert!(lab.ask(Purpose::Listen(unix(&path))).await.is_err(), "it is taken");
    drop(link);
    eventually("the socket is removed", || !path.exists()).await;
}

#[tokio::test]
async fn more_than_can_wait_stay_in_line() {
    let lab = Lab::new();
    let (answer, mut link) = lab.ask(Purpose::Listen(tcp("", 0))).await.unwrap();
    let Answer::Listening(Endpoint::Tcp { port, .. }) = answer else { panic!("{answer:?}") };
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let mut announced = Vec::new();
    for _ in 0..32 {
        announced.push(link.0.read_message::<FromGuest>().await.unwrap().unwrap());
    }
    // Nobody was sent away, and each place that becomes free is given to the next in line.
    for place in 0..8 {
        let FromGuest::Incoming { id, .. } = announced[place] else { panic!("{:?}", announced[place]) };
        let (answer, _taken) = lab.ask(Purpose::Take { id }).await.unwrap();
        assert_eq!(answer, Answer::Ready);
        let next = tokio::time::timeout(DEADLINE, link.0.read_message::<FromGuest>()).await.unwrap();
        announced.push(next.unwrap().unwrap());
    }
    let (_, mut taken) = match announced.last() {
        Some(FromGuest::Incoming { id, .. }) => lab.ask(Purpose::Take { id: *id }).await.unwrap(),
        other => panic!("{other:?}"),
    };
    taken.1.data(b"at last").await.unwrap();
    taken.1.eof().await.unwrap();
    let mut got = String::new();
    streams.last_mut().unwrap().read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "at last");
}
