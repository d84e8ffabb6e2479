//! The output of a job as text for a terminal: what comes in pieces of any bytes goes out in blocks of whole lines.
//!
//! Whoever prints a block ends it with a newline, and prints nothing for an empty one. So a block has no final newline, and a
//! single empty line waits for what comes after it. Sockets and time are not known here.

use std::borrow::Cow;

/// A line that is longer than this, in bytes, goes out in pieces.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How large a block may be as JSON, where a character can take up to six bytes. A piece of a line can take 384 KiB, and
/// clients refuse frames from 1 MiB on.
const MAX_BLOCK_BYTES: usize = 512 << 10;

/// What came and was not sent yet.
#[derive(Default)]
pub(super) struct LineBuffer {
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// Whether the beginning of that line was sent already.
    cut: bool,
    /// Whether there is an empty line to be sent before what comes next.
    empty_line: bool,
}

impl LineBuffer {
    /// Takes what came and returns the blocks that can go out now.
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

    /// Whether there is the beginning of a line.
    pub(super) fn has_partial_line(&self) -> bool {
        !self.held.is_empty()
    }

    /// What there is of a line whose end does not come. A character that is not complete stays.
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

    /// All that is left, at the end.
    pub(super) fn end(mut self) -> Vec<String> {
        let mut blocks = Blocks::default();
        let held = std::mem::take(&mut self.held);
        let text = terminal_text(final_state(&held));
        if !text.is_empty() {
            self.push_text(&text, &mut blocks);
        }
        blocks.into_blocks()
    }

    /// One whole line.
    fn push_line(&mut self, line: &[u8], blocks: &mut Blocks) {
        let line = final_state(line);
        let text = terminal_text(self.push_long_line(line, blocks));
        let is_rest_of_a_sent_line = std::mem::take(&mut self.cut);
        if !(text.is_empty() && is_rest_of_a_sent_line) {
            self.push_text(&text, blocks);
        }
    }

    /// Sends what is too long of a line and returns the rest of it.
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

    /// A block that is one empty line would not be printed: it goes before the next one.
    fn hold_empty_line(&mut self, blocks: Blocks) -> Vec<String> {
        let mut all = blocks.into_blocks();
        if all.last().is_some_and(String::is_empty) {
            all.pop();
            self.empty_line = true;
        }
        all
    }
}

/// LineBuffer that are being put together.
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
                    // One empty line alone would be lost; with the next one it is not.
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

/// How many bytes a line takes as JSON, with the newline before it.
fn json_cost(line: &str) -> usize {
    let bytes = line.bytes().map(|byte| match byte {
        0x1b => 6,
        b'"' | b'\\' | b'\t' => 2,
        _ => 1,
    });
    bytes.sum::<usize>() + 2
}

/// The state in which a terminal would show a line in the end: carriage returns begin it anew, and at its end they are part
/// of the newline, or of a progress bar that waits for its next state.
fn final_state(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    let line = &line[..end];
    let begin = line.iter().rposition(|byte| *byte == b'\r').map_or(0, |last| last + 1);
    &line[begin..]
}

/// Drops the states of a line that are overwritten already, but not what the next one may follow.
fn drop_overwritten(mut line: Vec<u8>) -> Vec<u8> {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    if let Some(last) = line[..end].iter().rposition(|byte| *byte == b'\r') {
        line.drain(..=last);
    }
    line
}

/// The text of a line, without what would disturb a terminal. Colours stay.
fn terminal_text(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let is_dropped = |c: char| (c < ' ' && c != '\t' && c != '\x1b') || c == '\x7f';
    match text.contains(is_dropped) {
        true => Cow::Owned(text.replace(is_dropped, "")),
        false => text,
    }
}

/// How many bytes at the end are the beginning of a character whose rest has not come.
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

    /// All blocks of these pieces, and of the end.
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

    #[test]
    fn lines_go_out_whole() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push(b"one\ntwo\nthr"), ["one\ntwo"]);
        assert_eq!(lines.push(b"e"), [""; 0]);
        assert_eq!(lines.push(b"e\nfour"), ["three"]);
        assert!(lines.has_partial_line());
        assert_eq!(lines.end(), ["four"]);
    }

    #[test]
    fn text_is_made_fit_for_a_terminal() {
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

    #[test]
    fn however_it_is_cut_the_lines_are_the_same() {
        let output = "first\n\nthird é ✓ 𝄞\r\nbar 1\rbar 2\n\n\nlast".as_bytes();
        let whole = printed(&blocks(&[output]));
        assert_eq!(whole, "first\n\nthird é ✓ 𝄞\nbar 2\n\n\nlast\n");
        for size in 1..output.len() {
            let pieces: Vec<&[u8]> = output.chunks(size).collect();
            assert_eq!(printed(&blocks(&pieces)), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_sent_all_the_same() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push("Password? ✓\u{e9}".as_bytes().split_last().unwrap().1), [""; 0]);
        assert_eq!(lines.flush(), ["Password? ✓"], "half a character stays");
        assert!(lines.has_partial_line());
        assert_eq!(lines.push(b"\xa9\n"), ["é"]);
        // The newline of a line that was sent is no empty line.
        assert_eq!(
            (lines.push(b"a"), lines.flush(), lines.push(b"\nb\n")),
            (vec![], vec!["a".into()], vec!["b".into()])
        );
        // Only the last state of a progress bar is sent.
        assert_eq!((lines.push(b"\r1%\r2%\r"), lines.flush()), (vec![], vec!["2%".into()]));
        assert_eq!(lines.push(b"3%\r\n"), ["3%"]);
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_no_character_is_cut() {
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

    #[test]
    fn a_frame_is_small_whatever_is_in_it() {
        let worst = [vec![0x1b; 1 << 20], vec![0xff; 1 << 20], vec![b'"'; 1 << 20], vec![b'\n'; 1 << 20]].concat();
        for line in [1, 100, 65_536, 1 << 20] {
            let pieces: Vec<u8> = worst.chunks(line).flat_map(|chunk| [chunk, b"\n"].concat()).collect();
            for block in blocks(&[&pieces]) {
                let frame = serde_json::json!({ "message": block }).to_string();
                assert!(frame.len() < 1_000_000, "{}", frame.len());
            }
        }
    }
}
