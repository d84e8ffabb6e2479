//! Tables that fit the terminal.

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde_json::Value;

use crate::commands::Context;
use crate::environment::Environment;
use crate::terminal::output::sanitize_line;

/// A column: its title, and the function that formats its cell.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// The columns whose text may wrap. Cells of all others stay on one line, because people copy them.
const WRAPPED_COLUMNS: [&str; 3] = ["EXPLANATION", "MESSAGE", "CLUSTERS"];

/// The minimum width of a wrapped column. On a narrower terminal rows are shown as records.
const MIN_WRAPPED_WIDTH: usize = 16;

/// The column with colors.
const STATUS: &str = "STATUS";

/// Formats rows as a table. Without a terminal every row is one line.
fn render_rows(rows: &[Value], columns: &[Column], environment: &Environment) -> String {
    if environment.width.is_some_and(|width| usize::from(width) < min_table_width(rows, columns)) {
        return render_records(rows, columns, environment);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns.iter().map(|(title, _)| *title));
    for row in rows {
        table.add_row(columns.iter().map(|(title, show)| {
            let text = sanitize_line(&show(row));
            match status_color(&text) {
                Some(colour) if *title == STATUS => Cell::new(text).fg(colour),
                _ => Cell::new(text),
            }
        }));
    }
    match environment.width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            for (column, (title, _)) in table.column_iter_mut().zip(columns) {
                if !WRAPPED_COLUMNS.contains(title) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    if environment.width.is_some() && !environment.no_color {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    let lines = table.to_string();
    let trimmed = lines.lines().map(|each| each.trim_end()).map(|each| each.strip_prefix(' ').unwrap_or(each));
    trimmed.collect::<Vec<_>>().join("\n")
}

/// The minimum width of a table: whole cells except in wrapped columns, and a space on both sides of each column.
fn min_table_width(rows: &[Value], columns: &[Column]) -> usize {
    let widest = |(title, show): &Column| {
        let cells = rows.iter().map(|row| sanitize_line(&show(row)).chars().count());
        let widest = cells.chain([title.chars().count()]).max().unwrap_or(0);
        2 + if WRAPPED_COLUMNS.contains(title) { widest.min(MIN_WRAPPED_WIDTH) } else { widest }
    };
    columns.iter().map(widest).sum()
}

/// Formats rows as records, one field per line.
fn render_records(rows: &[Value], columns: &[Column], environment: &Environment) -> String {
    let coloured = |row: &Value| {
        let record = render_fields(row, columns);
        let found = columns.iter().find(|(title, _)| *title == STATUS).map(|(_, show)| sanitize_line(&show(row)));
        match found.and_then(|status| status_color(&status).map(|colour| (status, colour))) {
            // A table of one cell, so that comfy-table does the coloring.
            Some((status, colour)) if !environment.no_color => {
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

/// The color of a status: good, bad or temporary; `None` for an unknown status.
fn status_color(status: &str) -> Option<Color> {
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

/// Formats a list of a body as a table; without rows it is the text `nothing`.
pub(crate) fn render_list(ctx: &Context<'_>, list: &Value, columns: &[Column], nothing: &str) -> String {
    match list.as_array().map(Vec::as_slice) {
        None | Some([]) => nothing.to_owned(),
        Some(rows) => render_rows(rows, columns, ctx.environment),
    }
}

/// Formats a list of texts, one per line.
pub(crate) fn render_lines(list: &Value) -> String {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(sanitize_line).collect::<Vec<_>>().join("\n")
}

/// The cell for `deletion_protection`.
pub(crate) fn deletion_protection_cell(row: &Value) -> String {
    yes_or_no_cell(row, "deletion_protection")
}

/// Formats a boolean; empty if it is absent.
pub(crate) fn yes_or_no_cell(row: &Value, name: &str) -> String {
    row[name].as_bool().map(|yes| if yes { "yes" } else { "no" }).unwrap_or_default().to_owned()
}

/// Formats a number; empty if it is absent.
pub(crate) fn number_cell(row: &Value, name: &str) -> String {
    row[name].as_number().map(ToString::to_string).unwrap_or_default()
}

/// Formats a time to the minute; the JSON has the seconds.
pub(crate) fn time_cell(row: &Value, name: &str) -> String {
    match row[name].as_str().map(|time| (time, time.get(..16))) {
        Some((time, Some(minute))) if time.ends_with('Z') => format!("{}Z", minute.replacen('T', " ", 1)),
        Some((time, _)) => time.to_owned(),
        None => String::new(),
    }
}

/// A name with its ID, or the one that is present.
pub(crate) fn name_with_id(name: &str, id: &str) -> String {
    match (name, id) {
        ("", other) | (other, "") => other.to_owned(),
        (name, id) => format!("{name} ({id})"),
    }
}

/// Joins a list in one cell.
pub(crate) fn join_cells(list: &Value, show: fn(&Value) -> String) -> String {
    list.as_array().into_iter().flatten().map(show).collect::<Vec<_>>().join(", ")
}

/// Formats the fields of one thing, one per line.
pub(crate) fn render_fields(thing: &Value, fields: &[Column]) -> String {
    let shown: Vec<_> = fields
        .iter()
        .map(|(title, show)| (*title, sanitize_line(&show(thing))))
        .filter(|(_, text)| !text.is_empty())
        .collect();
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
        render_rows(
            &rows,
            &[("NAME", name), (STATUS, name)],
            &Environment { width, no_color, ..Environment::default() },
        )
    }

    #[test]
    fn rows_fit_the_terminal_and_are_one_line_without() {
        let rows = [json!({ "name": "c-0123456789ab", "why": "it waits for something that takes long" })];
        let columns: [Column; 2] =
            [("ID", name), ("EXPLANATION", |row| row["why"].as_str().unwrap_or_default().to_owned())];
        let at = |width| render_rows(&rows, &columns, &Environment { width, no_color: true, ..Environment::default() });
        assert!(at(Some(40)).lines().all(|each| each.chars().count() <= 40), "{}", at(Some(40)));
        assert!(at(Some(40)).lines().count() > 2 && at(Some(40)).contains("c-0123456789ab  "), "an ID stays whole");
        assert_eq!(at(None).lines().count(), 2);
        assert_eq!(at(Some(20)), "ID           c-0123456789ab\nEXPLANATION  it waits for something that takes long");
    }

    #[test]
    fn times_are_shown_to_the_minute() {
        assert_eq!(time_cell(&json!({ "at": "2026-11-16T18:53:59Z" }), "at"), "2026-11-16 18:53Z");
        assert_eq!(time_cell(&json!({ "at": "soon" }), "at"), "soon");
        assert_eq!(time_cell(&json!({ "at": null }), "at"), "");
    }

    #[test]
    fn colors_need_a_terminal_without_no_color() {
        assert!(rendered(Some(80), false).contains("\x1b["));
        assert!(!rendered(Some(80), true).contains('\x1b'));
        assert!(!rendered(None, false).contains('\x1b'));
    }
}
