//! Tables and text blocks for a terminal: the stock client prints only these of a list or an info.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use tarn_base::plain;

/// The maximum length of a value.
pub(crate) const MAX_CELL_CHARS: usize = 10_000;

/// A pipe table with `N` columns. Every list renders one, so cells are written once, into one buffer.
pub(crate) struct Table<const N: usize> {
    head: [&'static str; N],
    widths: [usize; N],
    text: String,
    /// Where each cell ends in `text`, and how many characters it has.
    ends: Vec<(usize, usize)>,
}

/// A value in a table or a block.
pub(crate) enum Cell<'a> {
    /// A text.
    Text(&'a str),
    /// Any other value.
    Shown(&'a dyn Display),
}

impl Cell<'_> {
    fn write_cell(&self, out: &mut String) {
        let start = out.len();
        match self {
            Cell::Text(text) => out.push_str(text),
            Cell::Shown(value) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{value}");
            }
        }
        if let Cow::Owned(harmless) = plain(&out[start..], MAX_CELL_CHARS) {
            out.truncate(start);
            out.push_str(&harmless);
        }
    }
}

impl<const N: usize> Table<N> {
    /// Returns a table without rows.
    pub(crate) fn new(head: [&'static str; N], rows: usize) -> Self {
        let text = String::with_capacity(rows * N * 12);
        Table { head, widths: head.map(str::len), text, ends: Vec::with_capacity(rows * N) }
    }

    /// Adds a row of values.
    pub(crate) fn row(&mut self, cells: [&dyn Display; N]) {
        self.cells(cells.map(Cell::Shown));
    }

    /// Adds a row whose texts need no formatting, for lists that are requested often.
    pub(crate) fn cells(&mut self, cells: [Cell<'_>; N]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            let start = self.text.len();
            cell.write_cell(&mut self.text);
            let text = &self.text[start..];
            if text.contains('|') {
                let escaped = text.replace('|', "\\|");
                self.text.truncate(start);
                self.text.push_str(&escaped);
            }
            let length = self.text[start..].chars().count();
            *width = length.max(*width);
            self.ends.push((self.text.len(), length));
        }
    }

    /// Renders the header line, the separator line and the rows.
    pub(crate) fn render(&self) -> String {
        let line = self.widths.iter().map(|width| width + 3).sum::<usize>() + 2;
        let mut out = String::with_capacity(line * (self.ends.len() / N.max(1) + 2) + 256);
        for (title, width) in self.head.iter().zip(self.widths) {
            push_padded(&mut out, title, width - title.len(), ' ');
        }
        out.push_str("|\n");
        for width in self.widths {
            push_padded(&mut out, "", width, '-');
        }
        out.push('|');
        let mut start = 0;
        for row in self.ends.chunks(N) {
            out.push('\n');
            for ((end, length), width) in row.iter().zip(self.widths) {
                push_padded(&mut out, &self.text[start..*end], width - length, ' ');
                start = *end;
            }
            out.push('|');
        }
        out
    }
}

fn push_padded(out: &mut String, text: &str, missing: usize, with: char) {
    out.push_str("| ");
    out.push_str(text);
    out.extend(std::iter::repeat_n(with, missing));
    out.push(' ');
}

/// Renders lines of `key: value` with aligned values.
pub(crate) fn render_block(lines: &[(&str, Cell<'_>)]) -> String {
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let mut out = String::with_capacity(lines.len() * 48);
    for (at, (key, value)) in lines.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "\n" });
        out.push_str(key);
        out.push(':');
        out.extend(std::iter::repeat_n(' ', width + 1 - key.len()));
        value.write_cell(&mut out);
    }
    out
}

/// Appends a line of `name: explanation` for each of these, below a table.
pub(crate) fn append_explanations<'a>(out: &mut String, explained: impl Iterator<Item = (&'a String, &'a String)>) {
    for (at, (name, explanation)) in explained.enumerate() {
        let gap = if at == 0 { "\n\n" } else { "\n" };
        let _ = write!(out, "{gap}{name}: {}", plain(explanation, MAX_CELL_CHARS));
    }
}

/// An optional value; a dash when absent.
pub(crate) struct Dash<T>(pub(crate) Option<T>);

impl<T: Display> Display for Dash<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// Appends a line with the cursor of the next page, if there is one.
pub(crate) fn append_next_page(message: &mut String, next_cursor: Option<&str>) {
    if let Some(cursor) = next_cursor {
        let _ = write!(message, "\n\nThere are more; the next page has cursor={cursor}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns are aligned, and pipes are escaped.
    #[test]
    fn table_columns_are_aligned() {
        let mut table = Table::new(["ID", "NAME"], 2);
        table.row([&"c-1", &"a|b"]);
        table.row([&17, &Dash::<u8>(None)]);
        table.row([&"é", &"two\nlines"]);
        let expected = "\
| ID  | NAME      |
| --- | --------- |
| c-1 | a\\|b      |
| 17  | -         |
| é   | two lines |";
        assert_eq!(table.render(), expected);
    }

    /// Control characters do not reach the terminal.
    #[test]
    fn control_characters_are_replaced() {
        let evil = "a\u{1b}[2J\u{7f}\u{9b}1mb\r\n\tc é\u{a0}";
        let harmless = "a\u{fffd}[2J\u{fffd}\u{fffd}1mb   c é\u{a0}";
        assert_eq!(
            render_block(&[("ID", Cell::Text(evil)), ("B", Cell::Shown(&evil))]),
            format!("ID: {harmless}\nB:  {harmless}")
        );
        let mut table = Table::new(["ID"], 1);
        table.row([&evil]);
        assert_eq!(table.render().lines().last().unwrap(), format!("| {harmless} |"));
    }

    /// The values of a block are aligned.
    #[test]
    fn block_values_are_aligned() {
        assert_eq!(render_block(&[("ID", Cell::Text("c-1")), ("Status", Cell::Shown(&7))]), "ID:     c-1\nStatus: 7");
    }
}
