//! Tables that fit the terminal.

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde_json::Value;

use crate::commands::Context;
use crate::output::line;
use crate::surroundings::Surroundings;

/// A column: its title, and what it shows of a row.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// The columns of which the words may be broken into lines; all others are copied by people, and stay whole.
const PROSE: [&str; 3] = ["EXPLANATION", "MESSAGE", "CLUSTERS"];

/// The least width that prose is readable in. Where it has less, rows are shown as records.
const LEAST: usize = 16;

/// The column of which the words have colours.
const STATUS: &str = "STATUS";

/// Rows as a table. Without a terminal every row is one line.
fn render(rows: &[Value], columns: &[Column], surroundings: &Surroundings) -> String {
    if surroundings.width.is_some_and(|width| usize::from(width) < least(rows, columns)) {
        return records(rows, columns, surroundings);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns.iter().map(|(title, _)| *title));
    for row in rows {
        table.add_row(columns.iter().map(|(title, show)| {
            let text = line(&show(row));
            match colour(&text) {
                Some(colour) if *title == STATUS => Cell::new(text).fg(colour),
                _ => Cell::new(text),
            }
        }));
    }
    match surroundings.width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            for (column, (title, _)) in table.column_iter_mut().zip(columns) {
                if !PROSE.contains(title) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    match surroundings.width.is_some() && !surroundings.no_color {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    let lines = table.to_string();
    let trimmed = lines.lines().map(|each| each.trim_end()).map(|each| each.strip_prefix(' ').unwrap_or(each));
    trimmed.collect::<Vec<_>>().join("\n")
}

/// The width that a table needs: whole words where they are not prose, and a space on both sides of each column.
fn least(rows: &[Value], columns: &[Column]) -> usize {
    let widest = |(title, show): &Column| {
        let cells = rows.iter().map(|row| line(&show(row)).chars().count());
        let widest = cells.chain([title.chars().count()]).max().unwrap_or(0);
        2 + if PROSE.contains(title) { widest.min(LEAST) } else { widest }
    };
    columns.iter().map(widest).sum()
}

/// Rows one below the other.
fn records(rows: &[Value], columns: &[Column], surroundings: &Surroundings) -> String {
    let coloured = |row: &Value| {
        let record = describe(row, columns);
        let found = columns.iter().find(|(title, _)| *title == STATUS).map(|(_, show)| line(&show(row)));
        match found.and_then(|status| colour(&status).map(|colour| (status, colour))) {
            // A table of one cell: who knows how to colour that knows how to colour this.
            Some((status, colour)) if !surroundings.no_color => {
                let mut cell = Table::new();
                cell.load_preset(presets::NOTHING).add_row([Cell::new(&status).fg(colour)]).enforce_styling();
                let title = record.lines().find(|each| each.starts_with(STATUS)).unwrap_or_default().to_owned();
                record.replacen(&title, &title.replacen(&status, cell.to_string().trim(), 1), 1)
            }
            _ => record,
        }
    };
    rows.iter().map(coloured).collect::<Vec<_>>().join("\n\n")
}

/// Whether a status is a good one, a bad one, or one that will not stay. Of one that is not known nothing is said.
fn colour(status: &str) -> Option<Color> {
    match status {
        "RUNNING" | "READY" | "COMPLETED" | "completed" | "running" => Some(Color::Green),
        "FAILED" | "failed" | "error" => Some(Color::Red),
        "PENDING" | "PROVISIONING" | "CONFIGURING" | "RESTARTING" | "DESTROYING" | "CREATING" | "RESIZING" => {
            Some(Color::Yellow)
        }
        "PROCESSING" | "RETRYING" | "pending" | "canceling" => Some(Color::Yellow),
        _ => None,
    }
}

/// A list of an answer as a table; without rows it is these words.
pub(crate) fn of(ctx: &Context<'_>, list: &Value, columns: &[Column], nothing: &str) -> String {
    match list.as_array().map(Vec::as_slice) {
        None | Some([]) => nothing.to_owned(),
        Some(rows) => render(rows, columns, ctx.surroundings),
    }
}

/// A list of texts, one for each line.
pub(crate) fn lines(list: &Value) -> String {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(line).collect::<Vec<_>>().join("\n")
}

/// Whether destroying something is refused.
pub(crate) fn protected(row: &Value) -> String {
    yes_or_no(row, "deletion_protection")
}

/// What is so or not; nothing where nobody knows.
pub(crate) fn yes_or_no(row: &Value, name: &str) -> String {
    row[name].as_bool().map(|yes| if yes { "yes" } else { "no" }).unwrap_or_default().to_owned()
}

/// A number; nothing where there is none.
pub(crate) fn number(row: &Value, name: &str) -> String {
    row[name].as_number().map(ToString::to_string).unwrap_or_default()
}

/// A moment, to the minute: the seconds are in the JSON.
pub(crate) fn time(row: &Value, name: &str) -> String {
    match row[name].as_str().map(|time| (time, time.get(..16))) {
        Some((time, Some(minute))) if time.ends_with('Z') => format!("{}Z", minute.replacen('T', " ", 1)),
        Some((time, _)) => time.to_owned(),
        None => String::new(),
    }
}

/// A name with its ID, or whichever there is.
pub(crate) fn named(name: &str, id: &str) -> String {
    match (name, id) {
        ("", other) | (other, "") => other.to_owned(),
        (name, id) => format!("{name} ({id})"),
    }
}

/// Several things in one cell.
pub(crate) fn joined(list: &Value, show: fn(&Value) -> String) -> String {
    list.as_array().into_iter().flatten().map(show).collect::<Vec<_>>().join(", ")
}

/// Names and values of one thing, one below the other.
pub(crate) fn describe(thing: &Value, fields: &[Column]) -> String {
    let shown: Vec<_> =
        fields.iter().map(|(title, show)| (*title, line(&show(thing)))).filter(|(_, text)| !text.is_empty()).collect();
    let widest = shown.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    shown.iter().map(|(title, text)| format!("{title:widest$}  {text}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(row: &Value) -> String {
        row["name"].as_str().unwrap_or_default().to_owned()
    }

    fn rendered(width: Option<u16>, no_color: bool) -> String {
        let rows = [json!({ "name": "a rather long name of something" }), json!({ "name": "RUNNING" })];
        render(&rows, &[("NAME", name), (STATUS, name)], &Surroundings { width, no_color, ..Surroundings::default() })
    }

    #[test]
    fn rows_fit_the_terminal_and_are_one_line_without() {
        let rows = [json!({ "name": "c-0123456789ab", "why": "it waits for something that takes long" })];
        let columns: [Column; 2] =
            [("ID", name), ("EXPLANATION", |row| row["why"].as_str().unwrap_or_default().to_owned())];
        let at = |width| render(&rows, &columns, &Surroundings { width, no_color: true, ..Surroundings::default() });
        assert!(at(Some(40)).lines().all(|each| each.chars().count() <= 40), "{}", at(Some(40)));
        assert!(at(Some(40)).lines().count() > 2 && at(Some(40)).contains("c-0123456789ab  "), "an ID stays whole");
        assert_eq!(at(None).lines().count(), 2);
        assert_eq!(at(Some(20)), "ID           c-0123456789ab\nEXPLANATION  it waits for something that takes long");
    }

    #[test]
    fn times_are_to_the_minute() {
        assert_eq!(time(&json!({ "at": "2026-11-16T18:53:59Z" }), "at"), "2026-11-16 18:53Z");
        assert_eq!(time(&json!({ "at": "soon" }), "at"), "soon");
        assert_eq!(time(&json!({ "at": null }), "at"), "");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(rendered(Some(80), false).contains("\x1b["));
        assert!(!rendered(Some(80), true).contains('\x1b'));
        assert!(!rendered(None, false).contains('\x1b'));
    }
}
