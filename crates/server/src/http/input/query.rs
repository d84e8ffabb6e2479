//! Query parameters: read one by one, so that all errors are reported at once, with the texts of FastAPI.

use std::ops::RangeInclusive;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tarn_api::errors::{Location, ValidationError};

use crate::App;
use crate::http::output::failure::{Failure, validation_error};

/// The query of a call.
pub(crate) struct Params<T>(pub(crate) T);

/// A type that can be read from a query.
pub(crate) trait FromQuery: Sized {
    /// Reads its parameters; errors are collected in `fields`, and then the value is not used.
    fn from_query(fields: &mut Fields) -> Self;
}

impl<T: FromQuery> FromRequestParts<App> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Failure> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Params)
    }
}

pub(super) fn parse_query<T: FromQuery>(query: &str) -> Result<T, Failure> {
    let mut fields = Fields::parse(query);
    let value = T::from_query(&mut fields);
    if fields.errors.is_empty() { Ok(value) } else { Err(Failure::unprocessable(fields.errors)) }
}

/// The parameters of a call and their errors. An empty parameter counts as absent.
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
    errors: Vec<ValidationError>,
}

impl Fields {
    fn parse(query: &str) -> Self {
        // Decoding any text into pairs succeeds; invalid UTF-8 is replaced.
        let pairs = if query.is_empty() { Vec::new() } else { serde_urlencoded::from_str(query).unwrap_or_default() };
        Fields { pairs, errors: Vec::new() }
    }

    /// Returns a text, if it is given; the last one counts.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().rposition(|(key, value)| key == name && !value.is_empty())?;
        Some(self.pairs.remove(at).1)
    }

    /// Returns all texts of a name, in order.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        let found = self.pairs.extract_if(.., |(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value).collect()
    }

    /// Returns a required text.
    pub(crate) fn required_text(&mut self, name: &str) -> String {
        self.text(name).unwrap_or_else(|| self.refuse(name, "missing", "Field required"))
    }

    /// Returns a boolean in any of the spellings of Python clients, in any case; false when absent.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let Some(text) = self.text(name) else { return false };
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" | "yes" | "y" | "on" => true,
            "false" | "0" | "f" | "no" | "n" | "off" => false,
            _ => self.refuse(name, "bool_parsing", "Input should be a valid boolean, unable to interpret input"),
        }
    }

    /// Returns an integer within its limits.
    pub(crate) fn number(&mut self, name: &str, limits: RangeInclusive<i64>) -> Option<i64> {
        let text = self.text(name)?;
        // A number that is too large for 128 bits is still a number, beyond every limit.
        let digits = text.trim().trim_start_matches(['-', '+']);
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let value = match text.trim().parse::<i128>() {
            Ok(value) => value,
            Err(_) if is_number && text.trim().starts_with('-') => i128::MIN,
            Err(_) if is_number => i128::MAX,
            Err(_) => {
                let msg = "Input should be a valid integer, unable to parse string as an integer";
                return self.refuse(name, "int_parsing", msg);
            }
        };
        if value < i128::from(*limits.start()) {
            let msg = format!("Input should be greater than or equal to {}", limits.start());
            return self.refuse(name, "greater_than_equal", &msg);
        }
        match i64::try_from(value) {
            Ok(value) if value <= *limits.end() => Some(value),
            _ => {
                let msg = format!("Input should be less than or equal to {}", limits.end());
                self.refuse(name, "less_than_equal", &msg)
            }
        }
    }

    /// Returns a required integer.
    pub(crate) fn required_number(&mut self, name: &str, limits: RangeInclusive<i64>) -> i64 {
        let before = self.errors.len();
        match self.number(name, limits) {
            Some(value) => value,
            None if self.errors.len() > before => 0,
            None => self.refuse(name, "missing", "Field required"),
        }
    }

    /// Returns one of a few choices, in any case.
    pub(crate) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        if found.is_none() {
            let names = choices.iter().map(|(word, _)| format!("'{word}'")).collect::<Vec<_>>();
            let () = self.refuse(name, "enum", &format!("Input should be {}", join_with_or(&names)));
        }
        found.map(|(_, value)| *value)
    }

    fn refuse<T: Default>(&mut self, name: &str, kind: &str, msg: &str) -> T {
        let loc = vec![Location::Field("query".to_owned()), Location::Field(name.to_owned())];
        self.errors.push(validation_error(loc, kind, msg));
        T::default()
    }
}

/// Joins the items as in `a, b or c`.
pub(crate) fn join_with_or(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
