//! The file transfer service: version 3 of the protocol, with the extensions of OpenSSH.
//!
//! It is a program of its own that runs with the user's rights and talks over its standard input and output, so that the
//! kernel decides what the user may do. It blocks and has one thread: requests are answered in their order, whatever waits is
//! answered in one write, and a file's bytes are read right into the answer. Names of files are bytes, not text.
//!
//! Start reading at [`serve`]; `requests` and `extended` are the verbs, `attributes`, `listing` and `wire` how things
//! are written, `handles` what is open.

mod attributes;
mod extended;
mod handles;
mod listing;
mod requests;
mod wire;

use std::io;

use requests::Server;

/// The longest packet that is taken or sent.
const MAX_PACKET: usize = 256 << 10;

/// The most data in one packet: the rest is for what is said around it.
const MAX_DATA: usize = MAX_PACKET - 1024;

/// How many bytes are read at a time, and from how many on an answer is not held back for more.
const CHUNK: usize = 512 << 10;

/// Serves requests until the input ends.
pub fn serve() -> io::Result<()> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // More fits into a pipe than by default, if the kernel allows it.
    let _ = rustix::pipe::fcntl_setpipe_size(input, 1 << 20);
    let mut server = Server::default();
    let (mut incoming, mut filled, mut outgoing) = (vec![0; CHUNK], 0, Vec::with_capacity(CHUNK + MAX_PACKET));
    loop {
        let length = match rustix::io::read(input, &mut incoming[filled..]) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        filled += length;
        let mut used = 0;
        while let Some(packet) = wire::packet(&incoming[used..filled])? {
            used += packet.len() + 4;
            server.answer(packet, &mut outgoing);
            if outgoing.len() >= CHUNK {
                write_all(output, &mut outgoing)?;
            }
        }
        incoming.copy_within(used..filled, 0);
        filled -= used;
        write_all(output, &mut outgoing)?;
    }
}

fn write_all(output: std::os::fd::BorrowedFd<'_>, data: &mut Vec<u8>) -> io::Result<()> {
    let mut rest = data.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(output, rest) {
            Ok(length) => rest = &rest[length..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    data.clear();
    Ok(())
}
