//! Turns the log of a job into text for a terminal: chunks of any bytes become blocks of whole lines.
//!
//! A client prints a newline after each block, and nothing for an empty block. So a block has no final newline, and a
//! single empty line waits for the next line. This module does not know sockets or time.

use std::borrow::Cow;

/// A line that is longer than this, in bytes, is sent in pieces.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How large a block of several lines may be as JSON. A character can take up to six bytes there, so a piece of a line
/// can take 384 KiB; clients refuse frames from 1 MiB on.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// In how many forms a block may be in memory at the same time: as text, as a frame, and in the buffer of the socket.
const FORMS: usize = 3;

/// How many bytes take the place of one that belongs to no character.
const REPLACED_BYTES: usize = 3;

/// Output that was received and not sent yet.
#[derive(Default)]
pub(super) struct LineBuffer {
    /// The start of an incomplete line.
    held: Vec<u8>,
    /// Whether a part of that line was sent already.
    cut: bool,
    /// Whether an empty line must be sent before the next line.
    empty_line: bool,
}

impl LineBuffer {
    /// Adds output and returns the blocks that can be sent now.
    pub(super) fn push(&mut self, data: &[u8]) -> Vec<String> {
        let mut blocks = Blocks::default();
        let mut rest = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.held.is_empty() {
                self.push_line(line, &mut blocks);
            } else {
                self.held.extend_from_slice(line);
                let line = std::mem::take(&mut self.held);
                self.push_line(&line, &mut blocks);
            }
            rest = after;
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > MAX_LINE_BYTES {
            let held = drop_overwritten(std::mem::take(&mut self.held));
            self.held = self.push_long_line(&held, &mut blocks).to_vec();
        }
        self.hold_empty_line(blocks)
    }

    /// Returns how much memory the blocks may take that [`LineBuffer::push`] returns for this output, until they are
    /// sent.
    pub(super) fn sending_bytes(&self, data: &[u8]) -> usize {
        let bytes = self.held.iter().chain(data).map(|byte| match byte {
            0x80.. => REPLACED_BYTES,
            byte => json_bytes(*byte),
        });
        FORMS * bytes.sum::<usize>()
    }

    /// Returns whether there is an incomplete line.
    pub(super) fn has_partial_line(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the incomplete line. An incomplete character stays in the buffer.
    pub(super) fn flush(&mut self) -> Vec<String> {
        let mut blocks = Blocks::default();
        let held = std::mem::take(&mut self.held);
        let complete = held.len() - incomplete_bytes(&held);
        let text = terminal_text(final_state(&held[..complete]));
        if !text.is_empty() {
            self.push_text(&text, &mut blocks);
            self.cut = true;
        }
        self.held = held[complete..].to_vec();
        self.hold_empty_line(blocks)
    }

    /// Returns the rest at the end of the log.
    pub(super) fn end(mut self) -> Vec<String> {
        let mut blocks = Blocks::default();
        let held = std::mem::take(&mut self.held);
        let text = terminal_text(final_state(&held));
        if !text.is_empty() {
            self.push_text(&text, &mut blocks);
        }
        blocks.into_blocks()
    }

    /// Adds one whole line.
    fn push_line(&mut self, line: &[u8], blocks: &mut Blocks) {
        let line = final_state(line);
        let text = terminal_text(self.push_long_line(line, blocks));
        let is_rest_of_a_sent_line = std::mem::take(&mut self.cut);
        if !(text.is_empty() && is_rest_of_a_sent_line) {
            self.push_text(&text, blocks);
        }
    }

    /// Adds the pieces of a line that is too long and returns its rest.
    fn push_long_line<'a>(&mut self, mut line: &'a [u8], blocks: &mut Blocks) -> &'a [u8] {
        while line.len() > MAX_LINE_BYTES {
            let (piece, rest) = line.split_at(MAX_LINE_BYTES - incomplete_bytes(&line[..MAX_LINE_BYTES]));
            let text = terminal_text(piece);
            if !text.is_empty() {
                self.push_text(&text, blocks);
                self.cut = true;
            }
            line = rest;
        }
        line
    }

    fn push_text(&mut self, text: &str, blocks: &mut Blocks) {
        if std::mem::take(&mut self.empty_line) {
            blocks.add("");
        }
        blocks.add(text);
    }

    /// Keeps a final block that is one empty line for the next block: alone it would not be printed.
    fn hold_empty_line(&mut self, blocks: Blocks) -> Vec<String> {
        let mut all = blocks.into_blocks();
        if all.last().is_some_and(String::is_empty) {
            all.pop();
            self.empty_line = true;
        }
        all
    }
}

/// Blocks under construction.
#[derive(Default)]
struct Blocks {
    done: Vec<String>,
    open: Option<String>,
    cost: usize,
}

impl Blocks {
    fn add(&mut self, line: &str) {
        let cost = json_cost(line);
        match &mut self.open {
            Some(open) if self.cost + cost <= MAX_BLOCK_BYTES => {
                open.push('\n');
                open.push_str(line);
                self.cost += cost;
            }
            open => {
                let full = open.replace(line.to_owned());
                self.cost = cost;
                match full {
                    // One empty line alone would be lost; joined with the next line it is not.
                    Some(full) if full.is_empty() => *open = Some(format!("\n{line}")),
                    full => self.done.extend(full),
                }
            }
        }
    }

    fn into_blocks(mut self) -> Vec<String> {
        self.done.extend(self.open);
        self.done
    }
}

/// Returns how many bytes a line takes as JSON, with the newline before it.
fn json_cost(line: &str) -> usize {
    line.bytes().map(json_bytes).sum::<usize>() + 2
}

/// Returns how many bytes a byte of a text takes as JSON.
fn json_bytes(byte: u8) -> usize {
    match byte {
        0x1b => 6,
        b'"' | b'\\' | b'\t' | b'\n' => 2,
        _ => 1,
    }
}

/// Returns the line as a terminal would finally show it: a carriage return starts it again. At the end of the line,
/// carriage returns belong to the newline, or to a progress bar that will be redrawn.
fn final_state(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    let line = &line[..end];
    let begin = line.iter().rposition(|byte| *byte == b'\r').map_or(0, |last| last + 1);
    &line[begin..]
}

/// Drops the parts of a line that are overwritten, but not the last one.
fn drop_overwritten(mut line: Vec<u8>) -> Vec<u8> {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    if let Some(last) = line[..end].iter().rposition(|byte| *byte == b'\r') {
        line.drain(..=last);
    }
    line
}

/// Returns the text of a line without control characters that would disturb a terminal. Colour codes stay.
fn terminal_text(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let is_dropped = |c: char| (c < ' ' && c != '\t' && c != '\x1b') || c == '\x7f';
    if text.contains(is_dropped) { Cow::Owned(text.replace(is_dropped, "")) } else { text }
}

/// Returns how many bytes at the end belong to an incomplete character.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let begin = bytes.len().saturating_sub(3);
    let at = bytes[begin..].iter().rposition(|byte| *byte >= 0xc0);
    let Some(tail) = at.map(|at| &bytes[begin + at..]) else { return 0 };
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All blocks of these chunks, with the rest at the end.
    fn blocks(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = LineBuffer::default();
        let mut all: Vec<String> = pieces.iter().flat_map(|piece| lines.push(piece)).collect();
        all.extend(lines.end());
        all
    }

    /// What a client prints: each block with a newline after it, and nothing for an empty one.
    fn printed(blocks: &[String]) -> String {
        blocks.iter().filter(|block| !block.is_empty()).map(|block| format!("{block}\n")).collect()
    }

    /// Lines are sent whole.
    #[test]
    fn lines_are_sent_whole() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push(b"one\ntwo\nthr"), ["one\ntwo"]);
        assert_eq!(lines.push(b"e"), [""; 0]);
        assert_eq!(lines.push(b"e\nfour"), ["three"]);
        assert!(lines.has_partial_line());
        assert_eq!(lines.end(), ["four"]);
    }

    /// Text is cleaned for a terminal.
    #[test]
    fn text_is_cleaned_for_terminal() {
        let cases: [(&[u8], &str); 12] = [
            (b"a\r\nb\r\r\n", "a\nb\n"),
            (b"10%\r20%\r100%\ndone\n", "100%\ndone\n"),
            (b"\r 10%\r 20%", " 20%\n"),
            (b"\r 10%\r 20%\r", " 20%\n"),
            (b"a\x00b\x07c\x08\x7f\td\x1b[31me\n", "abc\td\x1b[31me\n"),
            (b"\xff\xfe caf\xc3\xa9 \xe2\x82\n", "\u{fffd}\u{fffd} café \u{fffd}\n"),
            (b"\n\na\n\n\n", "\n\na\n\n\n"),
            (b"\n", ""),
            (b"a\n\n", "a\n\n"),
            (b"", ""),
            (b"a\x00\n\x00", "a\n"),
            ("ünïcödé ✓\n".as_bytes(), "ünïcödé ✓\n"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(printed(&blocks(&[bytes])), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    /// The lines do not depend on how the output is split.
    #[test]
    fn lines_do_not_depend_on_chunks() {
        let output = "first\n\nthird é ✓ 𝄞\r\nbar 1\rbar 2\n\n\nlast".as_bytes();
        let whole = printed(&blocks(&[output]));
        assert_eq!(whole, "first\n\nthird é ✓ 𝄞\nbar 2\n\n\nlast\n");
        for size in 1..output.len() {
            let pieces: Vec<&[u8]> = output.chunks(size).collect();
            assert_eq!(printed(&blocks(&pieces)), whole, "in pieces of {size}");
        }
    }

    /// An incomplete line is flushed.
    #[test]
    fn incomplete_line_is_flushed() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push("Password? ✓\u{e9}".as_bytes().split_last().unwrap().1), [""; 0]);
        assert_eq!(lines.flush(), ["Password? ✓"], "an incomplete character stays");
        assert!(lines.has_partial_line());
        assert_eq!(lines.push(b"\xa9\n"), ["é"]);
        // The newline after a flushed line is not an empty line.
        assert_eq!(
            (lines.push(b"a"), lines.flush(), lines.push(b"\nb\n")),
            (vec![], vec!["a".into()], vec!["b".into()])
        );
        // Only the last state of a progress bar is sent.
        assert_eq!((lines.push(b"\r1%\r2%\r"), lines.flush()), (vec![], vec!["2%".into()]));
        assert_eq!(lines.push(b"3%\r\n"), ["3%"]);
    }

    /// An endless line takes bounded memory, and no character is cut.
    #[test]
    fn endless_line_takes_bounded_memory() {
        let mut lines = LineBuffer::default();
        let mut sent = String::new();
        for _ in 0..100 {
            sent.extend(lines.push("✓".repeat(5000).as_bytes()));
            assert!(lines.held.len() <= MAX_LINE_BYTES + 15_000);
        }
        sent.extend(lines.end());
        assert_eq!(sent, "✓".repeat(500_000));
        let mut bar = LineBuffer::default();
        for n in 0..100_000 {
            assert_eq!(bar.push(format!("\rstep {n}").as_bytes()), [""; 0], "a bar is no long line");
        }
        assert_eq!(bar.end(), ["step 99999"]);
    }

    /// A frame stays below the limit of clients, whatever it contains.
    #[test]
    fn frame_size_is_bounded() {
        let worst = [vec![0x1b; 1 << 20], vec![0xff; 1 << 20], vec![b'"'; 1 << 20], vec![b'\n'; 1 << 20]].concat();
        for line in [1, 100, 65_536, 1 << 20] {
            let pieces: Vec<u8> = worst.chunks(line).flat_map(|chunk| [chunk, b"\n"].concat()).collect();
            for block in blocks(&[&pieces]) {
                let frame = serde_json::json!({ "message": block }).to_string();
                assert!(frame.len() < 1_000_000, "{}", frame.len());
            }
            // So does the memory that is reserved for it.
            let mut lines = LineBuffer::default();
            for piece in pieces.chunks(16 << 10) {
                let reserved = lines.sending_bytes(piece);
                let taken: usize =
                    lines.push(piece).iter().map(|block| serde_json::json!(block).to_string().len()).sum();
                assert!(taken <= reserved, "{taken} bytes, and {reserved} were reserved");
            }
        }
    }
}
