//! The file transfer service: SFTP version 3 with the extensions of OpenSSH.
//!
//! It is a separate program that runs with the user's rights and uses its standard input and output, so the kernel
//! decides what the user may do. It blocks and has one thread: requests are handled in order, all pending replies go
//! out in one write, and file data is read directly into the reply. File names are bytes, not text.
//!
//! Start reading at [`serve_sftp`]; `requests` and `extended` handle the requests, `attributes`, `listing` and `wire`
//! encode the replies, and `handles` holds the open files.

mod attributes;
mod extended;
mod handles;
mod listing;
mod requests;
mod wire;

use std::io;

use requests::Server;

/// The maximum length of a packet.
const MAX_PACKET: usize = 256 << 10;

/// The maximum data in one packet; the rest is for the header.
const MAX_DATA: usize = MAX_PACKET - 1024;

/// How many bytes are read at a time, and how many bytes of replies are collected before a write.
const CHUNK: usize = 512 << 10;

/// Serves requests until the input ends.
pub fn serve_sftp() -> io::Result<()> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // Enlarges the pipe if the kernel allows it.
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
        while let Some(packet) = wire::next_packet(&incoming[used..filled])? {
            used += packet.len() + 4;
            server.handle_packet(packet, &mut outgoing);
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
